# SPDX-License-Identifier: BSD-3-Clause
# docker build -t c10d . && docker run --rm c10d test
FROM debian:12
WORKDIR /c10d
COPY . .
RUN ./dev build
ENTRYPOINT ["./dev"]
CMD ["--help"]
