// SPDX-License-Identifier: BSD-3-Clause
#include "tests/nn/naive.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace nn::naive {
namespace {

using Places = std::vector<std::size_t>;

// y[i] = f(x[i]), whose derivative is slope(x[i]).
Definition each_element(double (*f)(double), double (*slope)(double)) {
  return {[f](const Vector& x, const Vectors&) {
            Vector y;
            for (const double value : x) y.push_back(f(value));
            return y;
          },
          [slope](const Vector& x, const Vectors&, const Vector& diff) {
            Gradients result{diff, {}};
            for (std::size_t i = 0; i < x.size(); ++i) result.input[i] *= slope(x[i]);
            return result;
          }};
}

// Calls visit(sample, channel, first row, first column) for each window, in the output's order.
void each_window(Image image, int channels, int kernel, int stride, int padding,
                 const std::function<void(int n, int c, int y, int x)>& visit) {
  for (int n = 0; n < image.samples; ++n)
    for (int c = 0; c < channels; ++c)
      for (int y = -padding; y + kernel <= image.height + padding; y += stride)
        for (int x = -padding; x + kernel <= image.width + padding; x += stride) visit(n, c, y, x);
}

struct Convolution {
  Image image;
  int out, kernel, stride, padding;

  // The order of the weights is the layer's own.
  std::size_t weight(int c, int i, int ky, int kx) const {
    if (image.channels % 16 != 0 || out % 16 != 0)
      return ((ky * kernel + kx) * image.channels + i) * out + c;
    const int block = ((c / 16 * (image.channels / 16) + i / 16) * kernel + ky) * kernel + kx;
    return (block * 16 + i % 16) * 16 + c % 16;
  }
  // Calls begin(output, channel), then visit(output, input, weight) for each of its products.
  template <class Begin, class Visit>
  void each(const Begin& begin, const Visit& visit) const {
    std::size_t output = 0;
    each_window(image, out, kernel, stride, padding, [&](int n, int c, int y, int x) {
      begin(output, c);
      for (int i = 0; i < image.channels; ++i)
        for (int iy = std::max(y, 0); iy < std::min(y + kernel, image.height); ++iy)
          for (int ix = std::max(x, 0); ix < std::min(x + kernel, image.width); ++ix)
            visit(output, image.at(n, i, iy, ix), weight(c, i, iy - y, ix - x));
      ++output;
    });
  }
};

// The places of the largest values of the windows.
Places largest_of(const Vector& x, Image image, int kernel, int stride, int padding) {
  Places places;
  each_window(image, image.channels, kernel, stride, padding, [&](int n, int c, int top, int left) {
    std::size_t best = image.at(n, c, std::max(top, 0), std::max(left, 0));
    for (int iy = std::max(top, 0); iy < std::min(top + kernel, image.height); ++iy)
      for (int ix = std::max(left, 0); ix < std::min(left + kernel, image.width); ++ix)
        if (x[image.at(n, c, iy, ix)] > x[best]) best = image.at(n, c, iy, ix);
    places.push_back(best);
  });
  return places;
}

// (x - mean) / deviation over some places of a tensor.
class Normal {
 public:
  Normal(const Vector& x, const Places& places) : places_(places) {
    const auto count = static_cast<double>(places.size());
    double mean = 0, variance = 0;
    for (const std::size_t i : places) mean += x[i] / count;
    for (const std::size_t i : places) variance += (x[i] - mean) * (x[i] - mean) / count;
    deviation_ = std::sqrt(variance + 1e-5);
    for (const std::size_t i : places) values.push_back((x[i] - mean) / deviation_);
  }
  // The gradient of x from that of the values.
  void backward(const Vector& diff, Vector& to) const {
    const auto count = static_cast<double>(diff.size());
    double mean = 0, slope = 0;
    for (std::size_t k = 0; k < diff.size(); ++k) {
      mean += diff[k] / count;
      slope += diff[k] * values[k] / count;
    }
    for (std::size_t k = 0; k < diff.size(); ++k)
      to[places_[k]] = (diff[k] - mean - values[k] * slope) / deviation_;
  }

  Vector values;

 private:
  const Places& places_;
  double deviation_;
};

Places places_of_channel(Image image, int c) {
  Places places;
  for (int n = 0; n < image.samples; ++n)
    for (int i = 0; i < image.height * image.width; ++i)
      places.push_back(image.at(n, c, 0, 0) + static_cast<std::size_t>(i));
  return places;
}

Places places_of_row(std::size_t row, int width) {
  Places places;
  for (int i = 0; i < width; ++i) places.push_back(row * width + i);
  return places;
}

struct Attention {
  int samples, time, width, heads;

  int size() const { return width / heads; }
  double scale() const { return 1 / std::sqrt(size()); }
  // Queries, keys, values: which is 0, 1, 2.
  std::size_t in(int which, int n, int t, int h, int i) const {
    return (static_cast<std::size_t>(n) * time + t) * 3 * width + which * width + h * size() + i;
  }
  std::size_t out(int n, int t, int h, int i) const {
    return (static_cast<std::size_t>(n) * time + t) * width + h * size() + i;
  }
  // How much the output at time t takes from times 0 to t.
  Vector weights(const Vector& x, int n, int h, int t) const {
    Vector result;
    double total = 0;
    for (int s = 0; s <= t; ++s) {
      double score = 0;
      for (int i = 0; i < size(); ++i) score += x[in(0, n, t, h, i)] * x[in(1, n, s, h, i)];
      result.push_back(std::exp(score * scale()));
      total += result.back();
    }
    for (double& weight : result) weight /= total;
    return result;
  }
  template <class Visit>
  void each(const Visit& visit) const {
    for (int n = 0; n < samples; ++n)
      for (int h = 0; h < heads; ++h)
        for (int t = 0; t < time; ++t) visit(n, h, t);
  }
  void backward(const Vector& x, const Vector& diff, int n, int h, int t, Vector& to) const {
    const Vector weight = weights(x, n, h, t);
    Vector slope(weight.size());
    double mean = 0;
    for (int s = 0; s <= t; ++s) {
      for (int i = 0; i < size(); ++i) {
        slope[s] += diff[out(n, t, h, i)] * x[in(2, n, s, h, i)];
        to[in(2, n, s, h, i)] += diff[out(n, t, h, i)] * weight[s];
      }
      mean += weight[s] * slope[s];
    }
    for (int s = 0; s <= t; ++s)
      for (int i = 0; i < size(); ++i) {
        const double score = weight[s] * (slope[s] - mean) * scale();
        to[in(0, n, t, h, i)] += score * x[in(1, n, s, h, i)];
        to[in(1, n, s, h, i)] += score * x[in(0, n, t, h, i)];
      }
  }
};

double gelu_gate(double x) { return std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }

}  // namespace

Definition conv2d(Image image, int out, int kernel, int stride, int padding) {
  const Convolution conv{image, out, kernel, stride, padding};
  return {[conv](const Vector& x, const Vectors& p) {
            Vector y;
            conv.each([&](std::size_t, int c) { y.push_back(p.size() > 1 ? p[1][c] : 0); },
                      [&](std::size_t to, std::size_t from, std::size_t weight) {
                        y[to] += x[from] * p[0][weight];
                      });
            return y;
          },
          [conv](const Vector& x, const Vectors& p, const Vector& diff) {
            Vector input(x.size()), weights(p[0].size()), bias(static_cast<std::size_t>(conv.out));
            conv.each([&](std::size_t to, int c) { bias[c] += diff[to]; },
                      [&](std::size_t to, std::size_t from, std::size_t weight) {
                        input[from] += diff[to] * p[0][weight];
                        weights[weight] += diff[to] * x[from];
                      });
            return Gradients{input, {weights, bias}};
          }};
}

Definition max_pool(Image image, int kernel, int stride, int padding) {
  return {[=](const Vector& x, const Vectors&) {
            Vector y;
            for (const std::size_t i : largest_of(x, image, kernel, stride, padding))
              y.push_back(x[i]);
            return y;
          },
          [=](const Vector& x, const Vectors&, const Vector& diff) {
            Gradients result{Vector(x.size()), {}};
            std::size_t output = 0;
            for (const std::size_t i : largest_of(x, image, kernel, stride, padding))
              result.input[i] += diff[output++];
            return result;
          }};
}

Definition average_pool(Image image) {
  const int pixels = image.height * image.width;
  return {[=](const Vector& x, const Vectors&) {
            Vector y(x.size() / pixels);
            for (std::size_t i = 0; i < x.size(); ++i) y[i / pixels] += x[i] / pixels;
            return y;
          },
          [=](const Vector& x, const Vectors&, const Vector& diff) {
            Gradients result;
            for (std::size_t i = 0; i < x.size(); ++i)
              result.input.push_back(diff[i / pixels] / pixels);
            return result;
          }};
}

Definition batch_norm(Image image, bool relu) {
  const auto output = [=](const Vector& x, const Vectors& p) {
    Vector y(x.size());
    for (int c = 0; c < image.channels; ++c) {
      const Places places = places_of_channel(image, c);
      const Normal normal(x, places);
      for (std::size_t k = 0; k < places.size(); ++k) {
        const double value = normal.values[k] * p[0][c] + p[1][c];
        y[places[k]] = relu ? std::max(value, 0.0) : value;
      }
    }
    return y;
  };
  return {output, [=](const Vector& x, const Vectors& p, const Vector& diff) {
            const Vector y = output(x, p);
            Gradients result{Vector(x.size()), {Vector(p[0].size()), Vector(p[1].size())}};
            for (int c = 0; c < image.channels; ++c) {
              const Places places = places_of_channel(image, c);
              const Normal normal(x, places);
              Vector scaled;
              for (std::size_t k = 0; k < places.size(); ++k) {
                const double d = relu && y[places[k]] <= 0 ? 0 : diff[places[k]];
                result.parameters[0][c] += d * normal.values[k];
                result.parameters[1][c] += d;
                scaled.push_back(d * p[0][c]);
              }
              normal.backward(scaled, result.input);
            }
            return result;
          }};
}

Definition relu() {
  return each_element([](double x) { return std::max(x, 0.0); },
                      [](double x) { return x > 0 ? 1.0 : 0.0; });
}

Definition gelu() {
  return each_element([](double x) { return 0.5 * x * (1 + gelu_gate(x)); },
                      [](double x) {
                        const double gate = gelu_gate(x);
                        const double inner = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
                        return 0.5 * (1 + gate) + 0.5 * x * (1 - gate * gate) * inner;
                      });
}

Definition flatten() {
  return each_element([](double x) { return x; }, [](double) { return 1.0; });
}

Definition add() {
  return each_element([](double x) { return 2 * x; }, [](double) { return 2.0; });
}

Definition linear(int in, int out) {
  return {[=](const Vector& x, const Vectors& p) {
            Vector y;
            for (std::size_t row = 0; row < x.size() / in; ++row)
              for (int o = 0; o < out; ++o) {
                y.push_back(p[1][o]);
                for (int i = 0; i < in; ++i) y.back() += x[row * in + i] * p[0][o * in + i];
              }
            return y;
          },
          [=](const Vector& x, const Vectors& p, const Vector& diff) {
            Gradients result{Vector(x.size()), {Vector(p[0].size()), Vector(p[1].size())}};
            for (std::size_t row = 0; row < x.size() / in; ++row)
              for (int o = 0; o < out; ++o) {
                const double d = diff[row * out + o];
                result.parameters[1][o] += d;
                for (int i = 0; i < in; ++i) {
                  result.input[row * in + i] += d * p[0][o * in + i];
                  result.parameters[0][o * in + i] += d * x[row * in + i];
                }
              }
            return result;
          }};
}

Definition layer_norm(int width) {
  return {[=](const Vector& x, const Vectors& p) {
            Vector y;
            for (std::size_t row = 0; row < x.size() / width; ++row) {
              const Normal normal(x, places_of_row(row, width));
              for (int i = 0; i < width; ++i) y.push_back(normal.values[i] * p[0][i] + p[1][i]);
            }
            return y;
          },
          [=](const Vector& x, const Vectors& p, const Vector& diff) {
            Gradients result{Vector(x.size()), {Vector(p[0].size()), Vector(p[1].size())}};
            for (std::size_t row = 0; row < x.size() / width; ++row) {
              const Places places = places_of_row(row, width);
              const Normal normal(x, places);
              Vector scaled;
              for (int i = 0; i < width; ++i) {
                const double d = diff[places[i]];
                result.parameters[0][i] += d * normal.values[i];
                result.parameters[1][i] += d;
                scaled.push_back(d * p[0][i]);
              }
              normal.backward(scaled, result.input);
            }
            return result;
          }};
}

Definition attention(int samples, int time, int width, int heads) {
  const Attention attention{samples, time, width, heads};
  return {[=](const Vector& x, const Vectors&) {
            Vector y(x.size() / 3);
            attention.each([&](int n, int h, int t) {
              const Vector weight = attention.weights(x, n, h, t);
              for (int s = 0; s <= t; ++s)
                for (int i = 0; i < attention.size(); ++i)
                  y[attention.out(n, t, h, i)] += weight[s] * x[attention.in(2, n, s, h, i)];
            });
            return y;
          },
          [=](const Vector& x, const Vectors&, const Vector& diff) {
            Gradients result{Vector(x.size()), {}};
            attention.each(
                [&](int n, int h, int t) { attention.backward(x, diff, n, h, t, result.input); });
            return result;
          }};
}

// Row i is the sum of the rows x[i] of the first and i % time of the second table.
Definition embedding(int time, int width) {
  return {[=](const Vector& x, const Vectors& p) {
            Vector y;
            for (std::size_t row = 0; row < x.size(); ++row)
              for (int i = 0; i < width; ++i)
                y.push_back(p[0][static_cast<std::size_t>(x[row]) * width + i] +
                            p[1][row % time * width + i]);
            return y;
          },
          [=](const Vector& x, const Vectors& p, const Vector& diff) {
            Gradients result{{}, {Vector(p[0].size()), Vector(p[1].size())}};
            for (std::size_t row = 0; row < x.size(); ++row)
              for (int i = 0; i < width; ++i) {
                const double d = diff[row * width + i];
                result.parameters[0][static_cast<std::size_t>(x[row]) * width + i] += d;
                result.parameters[1][row % time * width + i] += d;
              }
            return result;
          }};
}

double cross_entropy(const Vector& logits, const std::vector<std::int32_t>& labels) {
  const std::size_t classes = logits.size() / labels.size();
  double loss = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < classes; ++i) sum += std::exp(logits[row * classes + i]);
    loss += std::log(sum) - logits[row * classes + labels[row]];
  }
  return loss;
}

Vector cross_entropy_gradient(const Vector& logits, const std::vector<std::int32_t>& labels) {
  const std::size_t classes = logits.size() / labels.size();
  Vector result;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < classes; ++i) sum += std::exp(logits[row * classes + i]);
    for (std::size_t i = 0; i < classes; ++i)
      result.push_back(std::exp(logits[row * classes + i]) / sum);
    result[row * classes + labels[row]] -= 1;
  }
  return result;
}

}  // namespace nn::naive
