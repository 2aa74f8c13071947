// SPDX-License-Identifier: Apache-2.0
#include "planner/cost_graph/contiguous.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "planner/metis/metis.h"
#include "runtime/base/errors.h"

namespace cleave::planner::cost_graph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMostSteps = 400'000'000;  // of walks over ideals: some ten seconds

// The load of one device as pieces are added behind each other in a topological order, or taken off
// again: every output's cost counts once when made inside and read outside, and once when made
// outside and read inside.
class GrowingSet {
public:
    explicit GrowingSet(const Pieces& pieces)
        : p_(pieces), inside_(pieces.count, false), readers_inside_(pieces.outputs.size(), 0) {}

    void add(int piece) {
        inside_[piece] = true;
        accelerator_ += p_.accelerator[piece];
        cpu_ += p_.cpu[piece];
        size_ += p_.size[piece];
        for (int o : p_.makes[piece]) exchange_ += outside(o) ? p_.outputs[o].cost : 0.0;
        for (int o : p_.reads[piece]) {
            bool made_here = inside_[p_.outputs[o].piece];
            if (!made_here && readers_inside_[o] == 0) exchange_ += p_.outputs[o].cost;
            ++readers_inside_[o];
            if (made_here && !outside(o)) exchange_ -= p_.outputs[o].cost;
        }
    }
    // The inverse of `add` for the piece added last.
    void remove(int piece) {
        for (int o : p_.reads[piece]) {
            bool made_here = inside_[p_.outputs[o].piece];
            if (made_here && !outside(o)) exchange_ += p_.outputs[o].cost;
            --readers_inside_[o];
            if (!made_here && readers_inside_[o] == 0) exchange_ -= p_.outputs[o].cost;
        }
        for (int o : p_.makes[piece]) exchange_ -= outside(o) ? p_.outputs[o].cost : 0.0;
        size_ -= p_.size[piece];
        cpu_ -= p_.cpu[piece];
        accelerator_ -= p_.accelerator[piece];
        inside_[piece] = false;
    }
    void clear() {
        std::fill(inside_.begin(), inside_.end(), false);
        std::fill(readers_inside_.begin(), readers_inside_.end(), 0);
        accelerator_ = cpu_ = size_ = exchange_ = 0;
    }
    double accelerator_work() const { return accelerator_; }
    double accelerator_load(double cap) const {
        return size_ <= cap ? accelerator_ + exchange_ : kInfinity;
    }
    double size() const { return size_; }
    double cpu_load() const { return cpu_; }

private:
    bool outside(int o) const {
        return readers_inside_[o] < static_cast<int>(p_.outputs[o].readers.size());
    }

    const Pieces& p_;
    std::vector<bool> inside_;
    std::vector<int> readers_inside_;
    double accelerator_ = 0, cpu_ = 0, size_ = 0, exchange_ = 0;
};

// best[a][c] of a prefix or an ideal: the least max-load with a accelerators and c CPUs.
struct Table {
    int accelerators, cpus;
    size_t width() const { return static_cast<size_t>(accelerators + 1) * (cpus + 1); }
    size_t at(int a, int c) const { return static_cast<size_t>(a) * (cpus + 1) + c; }
};

struct From {
    int state = -1;  // where the last device began
    bool cpu = false;
};

// Puts the last device's load behind each state of `from` into `to`.
template <class Update>
void relax(const Table& t, const double* from, double accelerator, double cpu, Update&& update) {
    for (int a = 0; a <= t.accelerators; ++a)
        for (int c = 0; c <= t.cpus; ++c) {
            double base = from[t.at(a, c)];
            if (base == kInfinity) continue;
            if (a < t.accelerators && accelerator < kInfinity)
                update(t.at(a + 1, c), std::max(base, accelerator), false);
            if (c < t.cpus && cpu < kInfinity) update(t.at(a, c + 1), std::max(base, cpu), true);
        }
}

// Follows the choices back; `pieces_between(from, to)` lists the pieces of one device.
template <class Between>
Assignment trace(const Table& t, const Pieces& pieces, const std::vector<double>& best,
                 const std::vector<From>& from, int last, Between&& between) {
    Assignment result;
    result.device.assign(pieces.count, 0);
    size_t slot = 0;
    result.max_load = kInfinity;
    for (size_t s = 0; s < t.width(); ++s)
        if (best[last * t.width() + s] < result.max_load)
            result.max_load = best[last * t.width() + s], slot = s;
    int state = last, next_accelerator = 0, next_cpu = t.accelerators;
    while (state != 0) {
        const From& f = from[state * t.width() + slot];
        CLEAVE_CHECK(f.state >= 0) << "a broken trace";
        int device = f.cpu ? next_cpu++ : next_accelerator++;
        for (int piece : between(f.state, state)) result.device[piece] = device;
        slot -= f.cpu ? 1 : static_cast<size_t>(t.cpus + 1);
        state = f.state;
    }
    return result;
}

// ---- Ideals

using Bits = std::vector<uint64_t>;

struct BitsHash {
    size_t operator()(const Bits& bits) const {
        uint64_t h = 0x9e3779b97f4a7c15u;
        for (uint64_t word : bits) h = (h ^ word) * 0xff51afd7ed558ccdu, h ^= h >> 32;
        return h;
    }
};

struct Lattice {
    struct Step {
        int piece, ideal;
    };
    std::vector<Bits> ideals;               // by size; the first is empty, the last whole
    std::vector<std::vector<Step>> larger;  // by one piece
};

std::optional<Lattice> find_ideals(const Pieces& p, size_t max_ideals) {
    Lattice lattice;
    size_t words = (p.count + 63) / 64;
    std::unordered_map<Bits, int, BitsHash> index;  // looked up, never walked
    lattice.ideals.push_back(Bits(words, 0));
    index[lattice.ideals[0]] = 0;
    auto has = [](const Bits& bits, int i) { return (bits[i / 64] >> (i % 64)) & 1; };
    for (size_t i = 0; i < lattice.ideals.size(); ++i) {
        lattice.larger.emplace_back();
        Bits now = lattice.ideals[i];
        for (int piece = 0; piece < p.count; ++piece) {
            if (has(now, piece)) continue;
            bool ready = std::all_of(p.before[piece].begin(), p.before[piece].end(),
                                     [&](int b) { return has(now, b); });
            if (!ready) continue;
            Bits next = now;
            next[piece / 64] |= uint64_t{1} << (piece % 64);
            auto [at, fresh] = index.try_emplace(next, static_cast<int>(lattice.ideals.size()));
            if (fresh) {
                if (lattice.ideals.size() >= max_ideals) return std::nullopt;
                lattice.ideals.push_back(std::move(next));
            }
            lattice.larger[i].push_back({piece, at->second});
        }
    }
    return lattice;
}

// Work on accelerators that is left behind each ideal, and the most of it that a CPU takes off them
// in a unit of time.
struct WorkLeft {
    std::vector<double> behind;  // by ideal
    double of_cpu = 0;

    WorkLeft(const Pieces& pieces, const Lattice& lattice) : behind(lattice.ideals.size(), 0) {
        const auto work = [&](int piece) {
            return std::isfinite(pieces.accelerator[piece]) ? pieces.accelerator[piece] : 0.0;
        };
        for (size_t i = behind.size(); i-- > 0;)
            if (!lattice.larger[i].empty()) {
                const Lattice::Step& step = lattice.larger[i].front();
                behind[i] = behind[step.ideal] + work(step.piece);
            }
        for (int p = 0; p < pieces.count; ++p)
            if (work(p) > 0)
                of_cpu = std::max(of_cpu, pieces.cpu[p] > 0 ? work(p) / pieces.cpu[p] : kInfinity);
    }
};

// For each ideal as the beginning of a device, walks the ideals above it depth first, each once,
// and relaxes them. What the devices behind it cannot finish below the bound is left out.
class IdealSearch {
public:
    IdealSearch(const CostGraph& graph, const Pieces& pieces, const Lattice& lattice,
                const WorkLeft& left, double bound, int64_t& steps)
        : left_(left),
          steps_(steps),
          graph_(graph),
          pieces_(pieces),
          lattice_(lattice),
          table_{graph.num_accelerators, graph.num_cpus},
          bound_(bound),
          best_(lattice.ideals.size() * table_.width(), kInfinity),
          from_(best_.size()),
          seen_(lattice.ideals.size(), -1),
          set_(pieces) {}

    std::optional<Assignment> run() {
        best_[0] = 0;
        auto last = static_cast<int>(lattice_.ideals.size()) - 1;
        for (begin_ = 0; begin_ < last && steps_ > 0; ++begin_) {
            base_ = best_.data() + begin_ * table_.width();
            if (std::all_of(base_, base_ + table_.width(), [&](double b) { return b >= bound_; }))
                continue;
            set_.clear();
            walk(begin_);
        }
        double found = *std::min_element(
            best_.begin() + last * static_cast<std::ptrdiff_t>(table_.width()), best_.end());
        if (found == kInfinity) return std::nullopt;
        return trace(table_, pieces_, best_, from_, last, [&](int a, int b) {
            std::vector<int> between;
            for (int piece = 0; piece < pieces_.count; ++piece)
                if (((lattice_.ideals[b][piece / 64] & ~lattice_.ideals[a][piece / 64]) >>
                     (piece % 64)) &
                    1)
                    between.push_back(piece);
            return between;
        });
    }

private:
    void walk(int ideal) {
        for (const Lattice::Step& step : lattice_.larger[ideal]) {
            if (seen_[step.ideal] == begin_) continue;
            seen_[step.ideal] = begin_;
            --steps_;
            set_.add(step.piece);
            // Work and size only grow; exchange may shrink, so it prunes nothing.
            bool accelerator = set_.accelerator_work() < bound_ &&
                               set_.size() <= graph_.accelerator_memory &&
                               graph_.num_accelerators > 0;
            bool cpu = set_.cpu_load() < bound_ && graph_.num_cpus > 0;
            if (accelerator || cpu) {
                double load =
                    accelerator ? set_.accelerator_load(graph_.accelerator_memory) : kInfinity;
                relax(table_, base_, load < bound_ ? load : kInfinity,
                      cpu ? set_.cpu_load() : kInfinity,
                      [&](size_t slot, double value, bool on_cpu) {
                          double& best = best_[step.ideal * table_.width() + slot];
                          if (value >= best || value >= bound_ || !may_end(step.ideal, slot))
                              return;
                          best = value;
                          from_[step.ideal * table_.width() + slot] = {begin_, on_cpu};
                      });
                walk(step.ideal);
            }
            set_.remove(step.piece);
        }
    }

    // Whether the devices that a slot leaves could do what is left behind an ideal.
    bool may_end(int ideal, size_t slot) const {
        const size_t per = static_cast<size_t>(table_.cpus) + 1, taken = slot / per;
        const auto accelerators =
            static_cast<double>(table_.accelerators) - static_cast<double>(taken);
        const auto cpus = static_cast<double>(table_.cpus) - static_cast<double>(slot % per);
        const double by_cpus = cpus > 0 ? cpus * left_.of_cpu * bound_ : 0;
        return left_.behind[ideal] <= by_cpus + accelerators * bound_ + 1e-9 * bound_;
    }

    const WorkLeft& left_;
    int64_t& steps_;  // that it may yet take
    const CostGraph& graph_;
    const Pieces& pieces_;
    const Lattice& lattice_;
    Table table_;
    double bound_;
    std::vector<double> best_;
    std::vector<From> from_;
    std::vector<int> seen_;
    GrowingSet set_;
    int begin_ = 0;
    const double* base_ = nullptr;
};

}  // namespace

std::optional<Assignment> cut_order(const CostGraph& graph, const Pieces& pieces,
                                    const std::vector<int>& order) {
    Table table{graph.num_accelerators, graph.num_cpus};
    std::vector<double> best((pieces.count + 1) * table.width(), kInfinity);
    std::vector<From> from(best.size());
    best[0] = 0;
    GrowingSet set(pieces);
    for (int begin = 0; begin < pieces.count; ++begin) {
        set.clear();
        for (int end = begin + 1; end <= pieces.count; ++end) {
            set.add(order[end - 1]);
            if (set.size() > graph.accelerator_memory && graph.num_cpus == 0) break;
            relax(table, best.data() + begin * table.width(),
                  set.accelerator_load(graph.accelerator_memory), set.cpu_load(),
                  [&](size_t slot, double value, bool on_cpu) {
                      if (value >= best[end * table.width() + slot]) return;
                      best[end * table.width() + slot] = value;
                      from[end * table.width() + slot] = {begin, on_cpu};
                  });
        }
    }
    auto last = best.begin() + static_cast<std::ptrdiff_t>(pieces.count * table.width());
    if (*std::min_element(last, best.end()) == kInfinity) return std::nullopt;
    return trace(table, pieces, best, from, pieces.count, [&](int a, int b) {
        return std::vector<int>(order.begin() + a, order.begin() + b);
    });
}

std::optional<Assignment> cut_ideals(const CostGraph& graph, const Pieces& pieces,
                                     const std::optional<Assignment>& known, double least,
                                     size_t max_ideals) {
    std::optional<Lattice> lattice = find_ideals(pieces, max_ideals);
    if (!lattice) return std::nullopt;
    const double worst = known ? known->max_load : kInfinity;
    const WorkLeft left(pieces, *lattice);
    int64_t steps = kMostSteps;
    // Close above the least that any plan has first: a low bound leaves little to walk.
    for (double above = 1.01; steps > 0; above = 1 + 2 * (above - 1)) {
        const double bound = above < 2 ? std::min(worst, least * above) : worst;
        std::optional<Assignment> better =
            IdealSearch(graph, pieces, *lattice, left, bound, steps).run();
        if (better && steps > 0) return better;
        if (bound >= worst) return steps > 0 ? known : std::nullopt;
    }
    return std::nullopt;
}

std::vector<int> metis_order(const Pieces& pieces, int parts, int64_t seed) {
    std::vector<PartitionEdge> edges;
    std::vector<int64_t> weights;
    for (const Output& o : pieces.outputs)
        for (int r : o.readers) edges.push_back({o.piece, r, 1 + std::llround(o.cost * 1e6)});
    for (int p = 0; p < pieces.count; ++p)
        weights.push_back(std::isfinite(pieces.accelerator[p])
                              ? 1 + std::llround(pieces.accelerator[p] * 1e6)
                              : 1);
    std::vector<int> part =
        partition_graph(pieces.count, edges, weights, std::vector<double>(parts, 1.0), seed);
    std::vector<double> position(parts, 0), count(parts, 0);
    for (int p = 0; p < pieces.count; ++p) position[part[p]] += p, ++count[part[p]];
    for (int k = 0; k < parts; ++k) position[k] /= std::max(1.0, count[k]);
    std::vector<int> waiting(pieces.count), order, ready;
    for (int p = 0; p < pieces.count; ++p) {
        waiting[p] = static_cast<int>(pieces.before[p].size());
        if (waiting[p] == 0) ready.push_back(p);
    }
    int current = -1;
    while (!ready.empty()) {
        auto better = [&](int a, int b) {
            return std::tuple(part[a] != current, position[part[a]], a) <
                   std::tuple(part[b] != current, position[part[b]], b);
        };
        auto at = std::min_element(ready.begin(), ready.end(), better);
        int piece = *at;
        ready.erase(at);
        current = part[piece];
        order.push_back(piece);
        for (int next : pieces.after[piece])
            if (--waiting[next] == 0) ready.push_back(next);
    }
    return order;
}

}  // namespace cleave::planner::cost_graph
