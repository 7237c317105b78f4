# SPDX-License-Identifier: BSD-3-Clause
# docker build -t c10d . && docker run --rm c10d c10d-bench compare
# docker run --rm c10d ./dev test
FROM debian:12
WORKDIR /c10d
COPY . .
RUN ./dev build
# In a container root is all there is: Open MPI starts ranks as root only if told so twice. Docker
# forbids a rank to read the memory of another, which Open MPI would try and complain of.
ENV PATH=/c10d/build/release/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_btl_vader_single_copy_mechanism=none
CMD ["./dev", "--help"]
