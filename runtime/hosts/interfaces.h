// SPDX-License-Identifier: Apache-2.0
// The network's interfaces of this host, as a person needs them to choose one or to see which one
// was chosen.
#pragma once

#include <string>

namespace cleave::runtime {

// Those that are up, with address and rate: "eth0 (10.0.0.1/24, 1 Gb/s), lo (127.0.0.1/8)". The
// rate is the driver's word (sysfs), absent where it has none.
std::string interface_list();

// Of those, the ones over which this process has TCP connections that are not to itself alone: the
// loopback's only where there is no other. "none by TCP" where a library goes another way.
std::string interfaces_in_use();

// Has UCX and NCCL take the network that mpirun was told for MPI (OMPI_MCA_btl_tcp_if_include, a
// network with its bits), by names of this host's interfaces and of their RDMA devices; what the
// user set stays. Does nothing where there is no such variable. UserError where no interface has an
// address of that network. Before any other thread.
void choose_network();

}  // namespace cleave::runtime
