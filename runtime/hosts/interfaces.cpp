// SPDX-License-Identifier: Apache-2.0
#include "runtime/hosts/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/errors.h"
#include "runtime/base/folder.h"

namespace cleave::runtime {

namespace {

struct Interface {
    std::string name, address;
    int bits = 0;  // of the network's part
    bool loops = false;

    std::string text() const {
        std::string rate;
        int64_t megabits = 0;
        std::ifstream file("/sys/class/net/" + name + "/speed");
        if (file >> megabits && megabits > 0)
            rate = megabits % 1000 == 0 ? fmt::format(", {} Gb/s", megabits / 1000)
                                        : fmt::format(", {} Mb/s", megabits);
        return fmt::format("{} ({}/{}{})", name, address, bits, rate);
    }
};

std::string text_of(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET)
        ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                    sizeof text);
    else if (address->sa_family == AF_INET6)
        ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                    sizeof text);
    return text;
}

int ones_of(const sockaddr* mask) {
    if (!mask) return 0;
    if (mask->sa_family == AF_INET)
        return std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr);
    int ones = 0;
    for (const uint8_t byte : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr)
        ones += std::popcount(byte);
    return ones;
}

std::vector<Interface> interfaces() {
    std::vector<Interface> found;
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all)) return found;
    for (const ifaddrs* i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
        if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6) continue;
        found.push_back({i->ifa_name, text_of(i->ifa_addr), ones_of(i->ifa_netmask),
                         (i->ifa_flags & IFF_LOOPBACK) != 0});
    }
    ::freeifaddrs(all);
    return found;
}

// Local addresses of the TCP connections of this process.
std::set<std::string> connected_from() {
    std::set<std::string> addresses;
    for (const std::string& name : names_in("/proc/self/fd")) {
        const int fd = std::atoi(name.c_str());
        sockaddr_storage storage{};
        auto* address = reinterpret_cast<sockaddr*>(&storage);
        socklen_t length = sizeof storage;
        if (::getpeername(fd, address, &length)) continue;
        length = sizeof storage;
        if (::getsockname(fd, address, &length)) continue;
        if (const std::string text = text_of(address); !text.empty()) addresses.insert(text);
    }
    return addresses;
}

std::string joined(const std::vector<std::string>& texts, const char* between = ", ") {
    return fmt::format("{}", fmt::join(texts, between));
}

std::string host_name() {
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    return name;
}

// "10.0.0.0/24" has the address: the first bits are the same.
bool lies_in(const std::string& network, const std::string& address) {
    const size_t slash = network.find('/');
    in_addr net{}, one{};
    if (slash == std::string::npos ||
        ::inet_pton(AF_INET, network.substr(0, slash).c_str(), &net) != 1 ||
        ::inet_pton(AF_INET, address.c_str(), &one) != 1)
        return false;
    const int bits = std::atoi(network.c_str() + slash + 1);
    const uint32_t mask = bits <= 0 ? 0 : ~uint32_t{0} << (32 - std::min(bits, 32));
    return ((ntohl(net.s_addr) ^ ntohl(one.s_addr)) & mask) == 0;
}

}  // namespace

void choose_network() {
    const char* network = std::getenv("OMPI_MCA_btl_tcp_if_include");
    if (!network || !std::strchr(network, '/') || std::strchr(network, ',')) return;
    std::vector<std::string> names, with_rdma;
    for (const Interface& i : interfaces()) {
        if (!lies_in(network, i.address)) continue;
        names.push_back(i.name);
        with_rdma.push_back(i.name);
        for (const std::string& device :
             names_in("/sys/class/net/" + i.name + "/device/infiniband"))
            with_rdma.push_back(device + ":1");
    }
    if (names.empty())
        throw UserError(
            "{} has no interface in the network {} that mpirun was told "
            "(OMPI_MCA_btl_tcp_if_include); it has {}",
            host_name(), network, interface_list());
    ::setenv("UCX_NET_DEVICES", joined(with_rdma, ",").c_str(), 0);
    ::setenv("NCCL_SOCKET_IFNAME", joined(names, ",").c_str(), 0);
}

std::string interface_list() {
    std::vector<std::string> texts;
    for (const Interface& i : interfaces()) texts.push_back(i.text());
    return texts.empty() ? "none" : joined(texts);
}

std::string interfaces_in_use() {
    const std::set<std::string> used = connected_from();
    std::vector<std::string> outer, loops;
    for (const Interface& i : interfaces())
        if (used.count(i.address)) (i.loops ? loops : outer).push_back(i.text());
    if (outer.empty() && loops.empty()) return "none by TCP";
    return joined(outer.empty() ? loops : outer);
}

}  // namespace cleave::runtime
