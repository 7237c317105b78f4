// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace c10d { inline namespace v0 { namespace native {

// The network and its cost to a rank, as far as they change the time of an algorithm: LogGP, where
// a host sends one message at a time and receives one at a time.
//
// The defaults are of an Ethernet of 10 Gb/s with a switch. What a message costs a rank was
// measured: 8 bytes over TCP from one network namespace to another, without a wire, take 5.3 us,
// half of them to send and half to receive. TCP through 10 Gb/s moved 1.2 GB/s each way. Two hosts
// with a rank each measured that it takes less time to exchange a part and then results than to
// reduce everything twice from 256 KiB on.
struct NetworkProfile {
  double latency_us = 10;   // one way, without the two ranks' own time
  double message_us = 2.5;  // that it takes a rank to send a message, or to receive one
  double us_per_byte = 1 / 1.2e3;
  double busy = 0.3;  // the part of the time of a large transfer for which a rank's thread runs
  double reduce_us_per_byte = 1 / 17.5e3;  // of what a reduction reads
};

}}}  // namespace c10d::v0::native
