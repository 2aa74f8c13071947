// SPDX-License-Identifier: Apache-2.0
// Chains of elementwise operators over tensors, alone in a launch or behind another kernel's own
// work (Sink). The generated Config computes the chain of N elements at once:
//     template <i64 N, class Walk, class Held> static void chain(const Walk& w, const Held* held,
//     Out* out)
// `held` are the elements that the launch has made; fetch() gives those of operands in memory, of
// which there are kOthers. What one operator hands to the next has been rounded to its type and is
// fenced, so that the bits are those of a launch each. The result is dense; operands are walked by
// strides, lanes that reach over the end of a row one by one.
#pragma once

#include "math.h"
#include "tensor_sink.h"

namespace cleave {

enum class Function {
    kIdentity,
    kTruth,
    kAdd,
    kSub,
    kMul,
    kDiv,
    kMod,
    kMin,
    kMax,
    kAnd,
    kOr,
    kNot,
    kEqual,
    kLess,
    kLessOrEqual,
    kGreater,
    kGreaterOrEqual,
    kWhere,
    kNeg,
    kAbs,
    kSqrt,
    kExp,
    kTanh,
    kSigmoid,
    kErf,
    kReciprocal,
    kRound,
    kCeil,
    kFloor,
    kRelu,
    kClip,
    kSwish
};

// Of integers, booleans among them.
template <Function kF>
CLEAVE_INLINE i64 compute_integer(i64 a, i64 b, i64 c) {
    using F = Function;
    if constexpr (kF == F::kIdentity) return a;
    if constexpr (kF == F::kTruth) return a != 0;
    if constexpr (kF == F::kAdd) return a + b;
    if constexpr (kF == F::kSub) return a - b;
    if constexpr (kF == F::kMul) return a * b;
    if constexpr (kF == F::kDiv) return b == 0 ? 0 : a / b;  // of zero: undefined in ONNX
    if constexpr (kF == F::kMod) return b == 0 ? 0 : (a % b + b) % b;
    if constexpr (kF == F::kMin) return min(a, b);
    if constexpr (kF == F::kMax) return max(a, b);
    if constexpr (kF == F::kAnd) return (a != 0) & (b != 0);
    if constexpr (kF == F::kOr) return (a != 0) | (b != 0);
    if constexpr (kF == F::kNot) return a == 0;
    if constexpr (kF == F::kEqual) return a == b;
    if constexpr (kF == F::kLess) return a < b;
    if constexpr (kF == F::kLessOrEqual) return a <= b;
    if constexpr (kF == F::kGreater) return a > b;
    if constexpr (kF == F::kGreaterOrEqual) return a >= b;
    if constexpr (kF == F::kWhere) return a != 0 ? b : c;
    if constexpr (kF == F::kNeg) return -a;
    if constexpr (kF == F::kAbs) return a < 0 ? -a : a;
    if constexpr (kF == F::kRelu) return max(a, 0);
    if constexpr (kF == F::kClip) return min(max(a, b), c);
    return 0;
}

// Of reals, N at a time; comparisons give 1 or 0.
template <Function kF, i64 N>
CLEAVE_INLINE FloatN<N> compute_real(FloatN<N> a, FloatN<N> b, FloatN<N> c, float alpha) {
    using F = Function;
    using V = FloatN<N>;
    const V one = 1.0f, zero = 0.0f;
    if constexpr (kF == F::kIdentity) return a;
    if constexpr (kF == F::kTruth) return a != zero ? one : zero;
    if constexpr (kF == F::kAdd) return a + b;
    if constexpr (kF == F::kSub) return a - b;
    if constexpr (kF == F::kMul) return a * b;
    if constexpr (kF == F::kDiv) return a / b;
    if constexpr (kF == F::kMin) return a != a ? a : b < a ? b : b != b ? b : a;
    if constexpr (kF == F::kMax) return a != a ? a : b > a ? b : b != b ? b : a;
    if constexpr (kF == F::kEqual) return a == b ? one : zero;
    if constexpr (kF == F::kLess) return a < b ? one : zero;
    if constexpr (kF == F::kLessOrEqual) return a <= b ? one : zero;
    if constexpr (kF == F::kGreater) return a > b ? one : zero;
    if constexpr (kF == F::kGreaterOrEqual) return a >= b ? one : zero;
    if constexpr (kF == F::kWhere) return a != zero ? b : c;
    if constexpr (kF == F::kNeg) return -a;
    if constexpr (kF == F::kAbs) return __builtin_elementwise_abs(a);
    if constexpr (kF == F::kSqrt) return __builtin_elementwise_sqrt(a);
    if constexpr (kF == F::kExp) return exp<N>(a);
    if constexpr (kF == F::kTanh) return tanh<N>(a);
    if constexpr (kF == F::kSigmoid) return one / (exp<N>(-a) + one);
    if constexpr (kF == F::kErf) return erf<N>(a);
    if constexpr (kF == F::kReciprocal) return one / a;
    if constexpr (kF == F::kRound) return __builtin_elementwise_roundeven(a);
    if constexpr (kF == F::kCeil) return __builtin_elementwise_ceil(a);
    if constexpr (kF == F::kFloor) return __builtin_elementwise_floor(a);
    if constexpr (kF == F::kRelu) return a < zero ? zero : a;
    if constexpr (kF == F::kClip) return a < b ? b : a > c ? c : a;
    if constexpr (kF == F::kSwish) return a / (exp<N>(a * -alpha) + one);
    return zero;
}

// ---- N elements

template <i64 N>
struct Integers {
    i64 v[N];
};

template <i64 N, class T>
CLEAVE_INLINE void write_lanes(T* to, FloatN<N> v) {
    for (i64 i = 0; i < N; ++i) write(to + i, v[i]);
}
template <i64 N>
CLEAVE_INLINE void write_lanes(float* to, FloatN<N> v) {
    store<N>(to, v);
}
#if defined(__F16C__)
template <i64 N>
CLEAVE_INLINE void write_lanes(f16* to, FloatN<N> v) {
    const auto half = __builtin_convertvector(v, HalfN<N>);
    __builtin_memcpy(to, &half, sizeof(u16) * N);
}
#endif

// Operators of one to three operands; alpha is Swish's.
template <Function kF, i64 kOperands, i64 N, class T>
CLEAVE_INLINE void map(T* to, FloatN<N> a, FloatN<N> b = 0.0f, FloatN<N> c = 0.0f,
                       float alpha = 0.0f) {
    FloatN<N> v = compute_real<kF, N>(a, b, c, alpha);
    if constexpr (kOperands > 2 && (kF == Function::kMin || kF == Function::kMax))
        v = compute_real<kF, N>(v, c, c, alpha);
    write_lanes<N>(to, v);
}
template <Function kF, i64 kOperands, i64 N, class T>
CLEAVE_INLINE void map(T* to, Integers<N> a, Integers<N> b = {}, Integers<N> c = {}) {
    for (i64 i = 0; i < N; ++i) {
        i64 v = compute_integer<kF>(a.v[i], b.v[i], c.v[i]);
        if constexpr (kOperands > 2 && (kF == Function::kMin || kF == Function::kMax))
            v = compute_integer<kF>(v, c.v[i], c.v[i]);
        write(to + i, v);
    }
}

// No multiply-add across operators: each is as exact as on its own.
template <i64 N>
CLEAVE_INLINE FloatN<N> fenced(FloatN<N> v) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(v));
#elif defined(__SSE2__)
    __asm__("" : "+x"(v));
#else
    __asm__("" : "+m"(v));
#endif
    return v;
}

// What an operator before has made, as f32 or as integers.
template <bool kReal, i64 N, class T>
CLEAVE_INLINE auto inner(const T* v) {
    if constexpr (!kReal) {
        Integers<N> lanes;
        for (i64 i = 0; i < N; ++i) lanes.v[i] = static_cast<i64>(read(v, i));
        return lanes;
    } else if constexpr (requires { load<N>(v); }) {
        return fenced<N>(load<N>(v));
    } else {
        FloatN<N> lanes;
        for (i64 i = 0; i < N; ++i) lanes[i] = static_cast<float>(read(v, i));
        return lanes;
    }
}

// ---- Walking over operands

template <class Config>
struct Chain<Config, true> {
    static constexpr i64 kOperands = Config::kOthers > 0 ? Config::kOthers : 1;
    const void* x[kOperands];
    i64 dims[6];
    i64 strides[kOperands][6], offset[kOperands];
};

// Lanes within a row: of operand k from x[k] + at[k] on, strides[k][5] apart.
template <class Config>
struct RowWalk {
    const Chain<Config>& chain;
    const i64* at;
};

// Lanes anywhere.
template <class Config, i64 N>
struct LaneWalk {
    const Chain<Config>& chain;
    i64 at[Chain<Config>::kOperands][N];
};

// kStride: along a row, 0 or 1; anything else is only known when it runs.
template <bool kReal, class T, i64 kStride, i64 N, class Config>
CLEAVE_INLINE auto fetch(const RowWalk<Config>& w, i64 k) {
    const T* p = static_cast<const T*>(w.chain.x[k]);
    const i64 stride = kStride == 0 || kStride == 1 ? kStride : w.chain.strides[k][5];
    if constexpr (!kReal) {
        Integers<N> lanes;
        for (i64 i = 0; i < N; ++i) lanes.v[i] = static_cast<i64>(read(p, w.at[k] + i * stride));
        return lanes;
    } else if constexpr (kStride == 0) {
        return FloatN<N>(static_cast<float>(read(p, w.at[k])));
    } else if constexpr (kStride == 1 && requires { load<N>(p); }) {
        return load<N>(p + w.at[k]);
    } else {
        FloatN<N> lanes;
        for (i64 i = 0; i < N; ++i) lanes[i] = static_cast<float>(read(p, w.at[k] + i * stride));
        return lanes;
    }
}
template <bool kReal, class T, i64 kStride, i64 N, class Config>
CLEAVE_INLINE auto fetch(const LaneWalk<Config, N>& w, i64 k) {
    const T* p = static_cast<const T*>(w.chain.x[k]);
    if constexpr (kReal) {
        FloatN<N> lanes;
        for (i64 i = 0; i < N; ++i) lanes[i] = static_cast<float>(read(p, w.at[k][i]));
        return lanes;
    } else {
        Integers<N> lanes;
        for (i64 i = 0; i < N; ++i) lanes.v[i] = static_cast<i64>(read(p, w.at[k][i]));
        return lanes;
    }
}

// A place in the result, and the places of the operands' elements for it.
template <class Config>
struct Place {
    static constexpr i64 kOperands = Config::kOthers;
    const Chain<Config>& chain;
    i64 index[6], at[Chain<Config>::kOperands];

    CLEAVE_INLINE Place(const Chain<Config>& c, i64 element) : chain(c) {
        for (i64 k = 0; k < kOperands; ++k) at[k] = c.offset[k];
        for (i64 d = 5; d >= 0; --d) {
            index[d] = element > 0 ? element % c.dims[d] : 0;
            element = element > 0 ? element / c.dims[d] : 0;
            for (i64 k = 0; k < kOperands; ++k) at[k] += index[d] * c.strides[k][d];
        }
    }
    // n elements on, at most to the end of the row.
    CLEAVE_INLINE void advance(i64 n) {
        index[5] += n;
        for (i64 k = 0; k < kOperands; ++k) at[k] += n * chain.strides[k][5];
        for (i64 d = 5; d > 0 && index[d] == chain.dims[d]; --d) {
            index[d] = 0;
            ++index[d - 1];
            for (i64 k = 0; k < kOperands; ++k)
                at[k] += chain.strides[k][d - 1] - chain.dims[d] * chain.strides[k][d];
        }
    }
    CLEAVE_INLINE i64 left_in_row() const { return chain.dims[5] - index[5]; }
};

// Elements [first, first + count) of the result, which go to `out`; of them the launch holds
// `held`, where it does, with kLanes more behind the last.
template <class Config, class Held>
CLEAVE_INLINE void run_chain(const Chain<Config>& chain, const Held* held,
                             typename Config::Out* out, i64 first, i64 count) {
    constexpr i64 N = kLanes;
    Place<Config> place(chain, first);
    for (i64 done = 0; done < count;) {
        for (; place.left_in_row() >= N && count - done >= N; done += N) {
            typename Config::Out lanes[N];
            Config::template chain<N>(RowWalk<Config>{chain, place.at}, held + done, lanes);
            __builtin_memcpy(out + done, lanes, sizeof(lanes));
            place.advance(N);
        }
        if (done == count) return;
        LaneWalk<Config, N> walk{chain, {}};
        const i64 n = min(N, count - done);
        for (i64 i = 0; i < N; ++i) {
            for (i64 k = 0; k < Config::kOthers; ++k) walk.at[k][i] = place.at[k];
            if (i + 1 < n) place.advance(1);  // lanes behind the last repeat it
        }
        place.advance(1);
        typename Config::Out lanes[N];
        Config::template chain<N>(walk, held + done, lanes);
        for (i64 i = 0; i < n; ++i) out[done + i] = lanes[i];
        done += n;
    }
}

// Collects what comes, and computes the chain of it.
template <class Config, class T>
class Sink<Config, T, true> {
public:
    static constexpr i64 kMost = 256;
    CLEAVE_INLINE Sink(typename Config::Out* out, const Chain<Config>& chain, i64 first)
        : chain_(chain), out_(out), first_(first) {}
    CLEAVE_INLINE ~Sink() { flush(); }
    CLEAVE_INLINE T* next(i64 n) {
        if (count_ + n > kMost) flush();
        T* room = held_ + count_;
        count_ += n;
        return room;
    }

private:
    __attribute__((noinline)) void flush() {
        if (count_ == 0) return;
        for (i64 i = 0; i < kLanes; ++i) held_[count_ + i] = held_[count_ - 1];
        run_chain<Config>(chain_, held_, out_ + first_, first_, count_);
        first_ += count_;
        count_ = 0;
    }

    const Chain<Config>& chain_;
    typename Config::Out* out_;
    i64 first_, count_ = 0;
    T held_[kMost + kLanes];
};

}  // namespace cleave
