// SPDX-License-Identifier: Apache-2.0
#include "planner/cost_graph/annealing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "runtime/base/split_mix.h"

namespace cleave::planner::cost_graph {
namespace {

// Loads of all devices under moves of single pieces.
class Loads {
public:
    Loads(const CostGraph& graph, const Pieces& pieces, std::vector<int> device)
        : g_(graph),
          p_(pieces),
          devices_(graph.num_accelerators + graph.num_cpus),
          device_(std::move(device)),
          load_(devices_, 0.0),
          size_(devices_, 0.0),
          readers_(pieces.outputs.size() * devices_, 0),
          total_(pieces.outputs.size(), 0) {
        for (int piece = 0; piece < p_.count; ++piece) {
            load_[device_[piece]] += work(piece, device_[piece]);
            size_[device_[piece]] += p_.size[piece];
        }
        for (size_t o = 0; o < p_.outputs.size(); ++o) {
            total_[o] = static_cast<int>(p_.outputs[o].readers.size());
            for (int r : p_.outputs[o].readers) ++readers_[o * devices_ + device_[r]];
            for (int d = 0; d < devices_; ++d) load_[d] += exchange(static_cast<int>(o), d);
        }
    }

    void move(int piece, int to) {
        int from = device_[piece];
        for (int o : p_.makes[piece]) subtract(o, from, to);
        for (int o : p_.reads[piece]) subtract(o, from, to);
        load_[from] -= work(piece, from);
        size_[from] -= p_.size[piece];
        device_[piece] = to;
        load_[to] += work(piece, to);
        size_[to] += p_.size[piece];
        for (int o : p_.reads[piece]) {
            --readers_[o * devices_ + from];
            ++readers_[o * devices_ + to];
        }
        for (int o : p_.makes[piece]) add(o, from, to);
        for (int o : p_.reads[piece]) add(o, from, to);
    }

    bool may(int piece, int device) const {
        if (device >= g_.num_accelerators) return true;
        return std::isfinite(p_.accelerator[piece]) &&
               size_[device] + p_.size[piece] <= g_.accelerator_memory;
    }
    bool runs_on(int piece, int device) const {
        return device >= g_.num_accelerators || std::isfinite(p_.accelerator[piece]);
    }
    // Within memory; sizes are sums and differences, hence the tolerance.
    bool allowed(int device) const {
        return device >= g_.num_accelerators ||
               size_[device] <= g_.accelerator_memory * (1 + 1e-12);
    }
    double worst() const { return *std::max_element(load_.begin(), load_.end()); }
    // What annealing walks on: the max-load, softened so that relieving any heavy device counts.
    double energy(double scale) const {
        double top = worst(), sum = 0;
        for (double l : load_) sum += std::exp((l - top) * scale);
        return top + std::log(sum) / scale;
    }
    int heaviest() const {
        return static_cast<int>(std::max_element(load_.begin(), load_.end()) - load_.begin());
    }
    int devices() const { return devices_; }
    int device(int piece) const { return device_[piece]; }
    const std::vector<int>& assignment() const { return device_; }

private:
    double work(int piece, int device) const {
        return device < g_.num_accelerators ? p_.accelerator[piece] : p_.cpu[piece];
    }
    // What output `o` costs device d: sent once when made there and read elsewhere, received once.
    // CPUs pay nothing.
    double exchange(int o, int d) const {
        if (d >= g_.num_accelerators) return 0;
        int here = readers_[o * devices_ + d];
        if (device_[p_.outputs[o].piece] == d) return here < total_[o] ? p_.outputs[o].cost : 0.0;
        return here > 0 ? p_.outputs[o].cost : 0.0;
    }
    void subtract(int o, int from, int to) {
        load_[from] -= exchange(o, from), load_[to] -= exchange(o, to);
    }
    void add(int o, int from, int to) {
        load_[from] += exchange(o, from), load_[to] += exchange(o, to);
    }

    const CostGraph& g_;
    const Pieces& p_;
    int devices_;
    std::vector<int> device_;
    std::vector<double> load_, size_;
    std::vector<int> readers_;  // of each output, by device
    std::vector<int> total_;
};

// A neighbour: a piece of a heavy device or any other, to a device that holds a neighbour of it or
// any other.
std::pair<int, int> propose(const Pieces& p, const Loads& loads, SplitMix64& random) {
    int piece = random.below(p.count);
    if (random.below(2) == 0) {
        int heavy = loads.heaviest();
        for (int tries = 0; tries < 16 && loads.device(piece) != heavy; ++tries)
            piece = random.below(p.count);
    }
    int to = random.below(loads.devices());
    if (random.below(4) != 0) {
        size_t degree = p.before[piece].size() + p.after[piece].size();
        if (degree > 0) {
            size_t pick = static_cast<size_t>(random.below(static_cast<int>(degree)));
            to = loads.device(pick < p.before[piece].size()
                                  ? p.before[piece][pick]
                                  : p.after[piece][pick - p.before[piece].size()]);
        }
    }
    return {piece, to};
}

constexpr double kFewAssignments = 300'000;

bool may_try_all(const CostGraph& graph, const Pieces& pieces) {
    // Loads of pieces that an accelerator cannot run are infinite, and have no differences.
    return pieces.count * std::log(graph.num_accelerators + graph.num_cpus) <
               std::log(kFewAssignments) &&
           std::ranges::all_of(pieces.accelerator, [](double ms) { return std::isfinite(ms); });
}

// `best`, or the better one of all assignments.
Assignment best_of_all(const CostGraph& graph, const Pieces& pieces, Assignment best) {
    Loads loads(graph, pieces, std::vector<int>(static_cast<size_t>(pieces.count), 0));
    for (;;) {
        bool allowed = true;
        for (int d = 0; d < loads.devices(); ++d) allowed = allowed && loads.allowed(d);
        for (int p = 0; p < pieces.count; ++p)
            allowed = allowed && loads.runs_on(p, loads.device(p));
        if (allowed && loads.worst() < best.max_load - 1e-12)
            best = {loads.worst(), loads.assignment()};
        int piece = 0;  // counts up, the first piece fastest
        while (piece < pieces.count && loads.device(piece) + 1 == loads.devices())
            loads.move(piece++, 0);
        if (piece == pieces.count) return best;
        loads.move(piece, loads.device(piece) + 1);
    }
}

}  // namespace

Assignment anneal(const CostGraph& graph, const Pieces& pieces, const Assignment& start,
                  double bound, double seconds, int64_t seed) {
    using Clock = std::chrono::steady_clock;
    auto end = Clock::now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    Assignment best = start;
    SplitMix64 random(static_cast<uint64_t>(seed) + 1);
    if (may_try_all(graph, pieces)) return best_of_all(graph, pieces, std::move(best));
    // Rounds double in length; each starts hot from the best plan so far, or from the given one.
    for (int64_t moves = 20'000, round = 0;
         Clock::now() < end && best.max_load > bound * (1 + 1e-9);
         moves = std::min<int64_t>(moves * 2, 2'000'000), ++round) {
        Loads loads(graph, pieces, round % 3 == 2 ? start.device : best.device);
        double scale = 60.0 / std::max(1e-12, best.max_load);
        double energy = loads.energy(scale), hot = best.max_load * (round % 2 ? 0.03 : 0.008),
               cold = best.max_load * 2e-5;
        for (int64_t i = 0; i < moves; ++i) {
            double t =
                hot * std::pow(cold / hot, static_cast<double>(i) / static_cast<double>(moves));
            auto [piece, to] = propose(pieces, loads, random);
            int from = loads.device(piece);
            if (to == from) continue;
            // Where memory is tight only an exchange is possible.
            int other = random.below(8) == 0 ? random.below(pieces.count) : -1;
            if (other >= 0 && (loads.device(other) != to || !loads.runs_on(other, from) ||
                               !loads.runs_on(piece, to)))
                other = -1;
            if (other < 0 && !loads.may(piece, to)) continue;
            loads.move(piece, to);
            if (other >= 0) loads.move(other, from);
            double next = loads.allowed(from) && loads.allowed(to) ? loads.energy(scale) : INFINITY;
            if (next > energy && random.unit() >= std::exp((energy - next) / t)) {
                if (other >= 0) loads.move(other, to);
                loads.move(piece, from);
                continue;
            }
            energy = next;
            if (loads.worst() < best.max_load - 1e-12) best = {loads.worst(), loads.assignment()};
            if ((i & 1023) == 0 && Clock::now() >= end) return best;
        }
    }
    return best;
}

}  // namespace cleave::planner::cost_graph
