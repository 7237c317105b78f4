#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes golden.json: what PyTorch computes for every layer and optimizer of examples/training/nn.

    /usr/bin/python3 tests/nn/make_golden.py tests/nn/golden.json

Computed in double precision and printed with six digits, so that every run, machine and version
of PyTorch writes the same file. Convolution weights are in PyTorch's order [out, in, height,
width], all else in that of examples/training/nn. Needs PyTorch (Debian: python3-torch); the test
does not.
"""
import json
import sys

import torch
from torch import nn

torch.set_default_dtype(torch.float64)


def random_values(shape, seed):
    """Odd multiples of 1/64: exact in every floating point type, and never 0, where ReLU bends."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randint(-32, 32, shape, generator=generator) + 1) / 64


def different_values(shape, seed):
    """No two are equal, so that a maximum is one value."""
    count = torch.Size(shape).numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return ((2 * order + 1 - count) / 64).reshape(shape)


def numbers(tensor):
    return [float(f"{value:.6g}") + 0 for value in tensor.detach().flatten().tolist()]


def written(tensor):
    return {"shape": list(tensor.shape), "values": numbers(tensor)}


def case(name, layer, function, x, parameters=(), input_gradient=True):
    """Outputs and gradients of function(x, parameters), by a loss that weighs the outputs."""
    x = x.clone().requires_grad_(input_gradient)
    parameters = [(key, value.clone().requires_grad_()) for key, value in parameters]
    y = function(x, *[value for _, value in parameters])
    direction = random_values(y.shape, 3)
    y.backward(direction)
    record = {"name": name, "layer": layer, "input": written(x), "output": written(y),
              "diff_output": numbers(direction), "parameters": []}
    if input_gradient:
        record["diff_input"] = numbers(x.grad)
    for key, value in parameters:
        record["parameters"].append(dict(written(value), name=key, gradient=numbers(value.grad)))
    return record


def given(*shapes):
    names = ("weight", "bias")
    return [(names[i], random_values(shape, 7 + i)) for i, shape in enumerate(shapes)]


def convolution(name, samples, size, channels, out, kernel, stride, padding, bias):
    def run(x, weight, bias=None):
        return nn.functional.conv2d(x, weight, bias, stride, padding)
    shapes = [(out, channels, kernel, kernel)] + ([(out,)] if bias else [])
    layer = {"type": "conv2d", "in": channels, "out": out, "kernel": kernel, "stride": stride,
             "padding": padding, "bias": bias}
    return case(name, layer, run, random_values((samples, channels, *size), 1), given(*shapes))


def pooling(name, kernel, stride, padding):
    return case(name, {"type": "max_pool", "kernel": kernel, "stride": stride, "padding": padding},
                lambda x: nn.functional.max_pool2d(x, kernel, stride, padding),
                different_values((1, 16, 5, 6), 1))


def batch_norm(name, relu):
    """Also the statistics after one step from means of 0 and variances of 1."""
    mean, variance = torch.zeros(16), torch.ones(16)

    def run(x, weight, bias):
        y = nn.functional.batch_norm(x, mean, variance, weight, bias, training=True, momentum=0.1)
        return torch.relu(y) if relu else y
    record = case(name, {"type": "batch_norm", "channels": 16, "relu": relu}, run,
                  random_values((2, 16, 2, 3), 1), given((16,), (16,)))
    record["running"] = [numbers(mean), numbers(variance)]
    x, weight, bias = (torch.tensor(v["values"]).reshape(v["shape"])
                       for v in (record["input"], *record["parameters"]))
    y = nn.functional.batch_norm(x, mean, variance, weight, bias)
    record["evaluated"] = numbers(torch.relu(y) if relu else y)
    return record


def attention(heads, width):
    """nn.MultiheadAttention, causal, with projections that change nothing."""
    layer = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
    layer.in_proj_weight.data = torch.eye(width).repeat(3, 1)
    layer.out_proj.weight.data = torch.eye(width)

    def run(x):
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return layer(*x.split(width, 2), attn_mask=future, need_weights=False)[0]
    return case("attention", {"type": "attention", "heads": heads}, run,
                random_values((2, 5, 3 * width), 1))


def embedding():
    tokens = torch.tensor([[0., 3, 3], [6, 1, 3]])

    def run(x, token, position):
        return (nn.functional.embedding(x.long(), token) +
                nn.functional.embedding(torch.arange(3).expand(2, 3), position))
    return case("embedding", {"type": "embedding", "tokens": 7, "length": 4, "width": 5}, run,
                tokens,
                [("token", random_values((7, 5), 7)), ("position", random_values((4, 5), 8))],
                input_gradient=False)


def layers():
    functional = nn.functional
    yield case("linear", {"type": "linear", "in": 37, "out": 11}, functional.linear,
               random_values((5, 37), 1), given((11, 37), (11,)))
    yield case("linear of rows", {"type": "linear", "in": 8, "out": 24}, functional.linear,
               random_values((2, 3, 8), 1), given((24, 8), (24,)))
    yield convolution("convolution", 2, (6, 5), 1, 6, 3, 1, 1, True)
    yield convolution("convolution in blocks", 1, (4, 5), 16, 16, 3, 2, 1, True)
    yield convolution("first convolution of ResNet18", 2, (12, 12), 1, 6, 7, 2, 3, False)
    yield convolution("shortcut of ResNet18", 2, (4, 4), 16, 32, 1, 2, 0, False)
    yield pooling("max pooling", 2, 2, 0)
    yield pooling("max pooling that overlaps", 3, 2, 1)
    yield case("average pooling", {"type": "average_pool"},
               lambda x: functional.adaptive_avg_pool2d(x, 1), random_values((2, 16, 3, 4), 1))
    yield batch_norm("batch norm", False)
    yield batch_norm("batch norm with ReLU", True)
    yield case("ReLU", {"type": "relu"}, torch.relu, random_values((1, 16, 2, 3), 1))
    yield case("GELU", {"type": "gelu"}, lambda x: functional.gelu(x, approximate="tanh"),
               4 * random_values((1, 16, 2, 3), 1))
    yield case("flatten", {"type": "flatten"}, lambda x: x.flatten(1),
               random_values((1, 16, 2, 3), 1))
    yield case("addition", {"type": "add"}, lambda x: x + x, random_values((3, 5), 1))
    yield case("layer norm", {"type": "layer_norm", "width": 24},
               lambda x, weight, bias: functional.layer_norm(x, (24,), weight, bias),
               random_values((2, 3, 24), 1), given((24,), (24,)))
    yield attention(2, 8)
    yield embedding()


def cross_entropy():
    logits = (8 * random_values((6, 10), 5)).requires_grad_()
    labels = torch.tensor([3, 9, 0, 0, 5, 7])
    loss = nn.functional.cross_entropy(logits, labels, reduction="sum")
    loss.backward()
    return {"logits": written(logits), "labels": labels.tolist(),
            "loss": float(f"{loss.item():.6g}"),
            "right": int((logits.argmax(1) == labels).sum()), "gradient": numbers(logits.grad)}


def optimizer(name, rule, make):
    """Four steps: the gradients and the values after each."""
    values = nn.Parameter(random_values((12,), 1))
    gradients, results = [], []
    stepper = make([values])
    for step in range(4):
        values.grad = random_values((12,), 10 + step)
        gradients.append(numbers(values.grad))
        stepper.step()
        results.append(numbers(values))
    return {"name": name, "rule": rule, "rate": stepper.param_groups[0]["lr"],
            "start": numbers(random_values((12,), 1)), "gradients": gradients, "values": results}


def main():
    record = {
        "layers": list(layers()),
        "cross_entropy": cross_entropy(),
        "optimizers": [
            optimizer("sgd", "weight", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
            optimizer("adamw", "weight", lambda p: torch.optim.AdamW(p, lr=0.01)),
            optimizer("adamw", "bias", lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0))]}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(json.dumps(record, separators=(",", ":")).replace('{"name"', '\n{"name"'))
        file.write("\n")


if __name__ == "__main__":
    main()
