// SPDX-License-Identifier: Apache-2.0
// Streams, events and captured graphs of the fakes.
#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/runtime_fakes/fake_gpu.h"

namespace cleave::fake {

namespace {

thread_local Stream* capturing = nullptr;  // the stream that this thread captures

template <class T>
T* known(std::set<T*>& all, const void* handle) {
    auto* object = static_cast<T*>(const_cast<void*>(handle));
    return all.count(object) ? object : nullptr;
}

template <class T>
int destroy(std::set<T*>& all, void* handle) {
    T* object = known(all, handle);
    if (!object) return kInvalidHandle;
    all.erase(object);
    delete object;
    return 0;
}

}  // namespace

Stream::Stream(int of_device)
    : device(of_device),
      number_(static_cast<int>(
          std::count_if(state().streams.begin(), state().streams.end(),
                        [&](const Stream* other) { return other->device == of_device; }))),
      thread_([this] { serve(); }) {}

// Work that nobody waited for is dropped.
Stream::~Stream() {
    close();
    thread_.join();
}

void Stream::close() {
    const std::lock_guard lock(mutex_);
    quit_ = true;
    changed_.notify_all();
}

namespace {

// Waits for streams without the call's lock; they stay until it has returned.
template <class Wanted, class Wait>
void wait_for_streams(Call& call, Wanted&& wanted, Wait&& wait) {
    std::vector<Stream*> streams;
    for (Stream* stream : state().streams)
        if (wanted(*stream)) streams.push_back(stream);
    for (Stream* stream : streams) ++stream->waiters;
    call.lock.unlock();
    for (Stream* stream : streams) wait(*stream);
    call.lock.lock();
    for (Stream* stream : streams) --stream->waiters;
}

}  // namespace

uint64_t Stream::submit(Work work) {
    last_launch.clear();
    if (capture) {
        capture->nodes.push_back(std::move(work));
        return 0;
    }
    await_room();
    const bool live = state().live;
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++submitted_;
    if (live) {
        allowed_ = submitted_;
        changed_.notify_all();
    }
    return submitted_;
}

// Real drivers take about 1000 launches of a stream. What other threads ask the fake meanwhile they
// may, but not for work of the card.
void Stream::await_room() {
    State& s = state();
    if (s.room == 0) return;
    if (calling) calling->lock.unlock();
    if (s.late == number_) std::this_thread::sleep_for(std::chrono::microseconds(s.late_us));
    bool in_vain = false;
    {
        const std::lock_guard card(s.submitting[static_cast<size_t>(device)]);
        std::unique_lock lock(mutex_);
        for (int i = 0; submitted_ - done_ >= s.room && !quit_; ++i) {
            in_vain = s.hanging[static_cast<size_t>(device)] > 0 && (waited_in_vain_ || i > 1500);
            if (in_vain) break;
            changed_.wait_for(lock, std::chrono::milliseconds(1));
        }
        waited_in_vain_ = waited_in_vain_ || in_vain;
    }
    if (calling) calling->lock.lock();
    const std::lock_guard lock(s.mutex);
    if (in_vain) ++s.calls["waits for ever"];
}

void Stream::allow(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    allowed_ = std::max(allowed_, ticket);
    changed_.notify_all();
}

bool Stream::is_done(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    return done_ >= ticket;
}

void Stream::wait(uint64_t ticket) {
    std::unique_lock lock(mutex_);
    allowed_ = std::max(allowed_, ticket);
    changed_.notify_all();
    changed_.wait(lock, [&] { return done_ >= ticket || quit_; });
}

bool Stream::settles() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = submitted_;
    allowed_ = std::max(allowed_, ticket);
    changed_.notify_all();
    for (int i = 0; done_ < ticket && !quit_; ++i) {
        // Its own kernel, or one of another stream that has the card to itself.
        const bool in_vain =
            hangs || (state().one_at_a_time && state().hanging[static_cast<size_t>(device)] > 0);
        if (in_vain && (waited_in_vain_ || i > 1500)) {
            waited_in_vain_ = true;
            return false;
        }
        changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    return true;
}

uint64_t Stream::last() {
    const std::lock_guard lock(mutex_);
    return submitted_;
}

void Stream::serve() {
    running_stream = this;
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return quit_ || (done_ < allowed_ && !queue_.empty()); });
        if (quit_) return;
        Work work = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        if (const int64_t lag = state().lag_us; lag > 0)
            std::this_thread::sleep_for(std::chrono::microseconds(lag));
        {
            std::unique_lock card(state().cards[static_cast<size_t>(device)], std::defer_lock);
            if (state().one_at_a_time) card.lock();
            if (!state().fault_of(device)) work();
        }
        lock.lock();
        ++done_;
        changed_.notify_all();
    }
}

Stream* find_stream(const void* handle) { return known(state().streams, handle); }
Event* find_event(const void* handle) { return known(state().events, handle); }

Call& Call::unsafe() {
    if (code == 0 && capturing) {
        capturing->capture->invalid = true;
        code = kCaptureUnsupported;
    }
    return *this;
}

int make_stream(Stream** stream) {
    *stream = new Stream(current_device);
    state().streams.insert(*stream);
    return 0;
}

int destroy_stream(Call& call, void* handle) {
    Stream* stream = find_stream(handle);
    if (!stream) return kInvalidHandle;
    if (capturing == stream) capturing = nullptr;
    state().streams.erase(stream);
    stream->close();
    while (stream->waiters > 0) {
        call.lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        call.lock.lock();
    }
    call.lock.unlock();
    delete stream;
    call.lock.lock();
    return 0;
}

int wait_for_stream(Call& call, void* handle) {
    Stream* stream = find_stream(handle);
    if (!stream) return kInvalidHandle;
    if (stream->capture) {
        stream->capture->invalid = true;
        return kCaptureUnsupported;
    }
    const int device = stream->device;
    wait_for_streams(
        call, [&](const Stream& s) { return &s == stream; }, [](Stream& s) { s.wait(s.last()); });
    return state().fault_of(device);
}

void settle(Call& call, const std::set<int>& devices) {
    size_t in_vain = 0;
    wait_for_streams(
        call, [&](const Stream& s) { return devices.count(s.device) > 0; },
        [&](Stream& s) { in_vain += !s.settles(); });
    if (in_vain > 0) ++state().calls["waits for ever"];
}

int wait_for_device(Call& call, int device) {
    ++state().waiting;
    wait_for_streams(
        call, [&](const Stream& s) { return s.device == device; },
        [](Stream& s) { s.wait(s.last()); });
    --state().waiting;
    return state().fault_of(device);
}

// The first question allows the work, a later one sees it done.
int query_stream(void* handle) {
    Stream* stream = find_stream(handle);
    if (!stream) return kInvalidHandle;
    if (stream->capture) {
        stream->capture->invalid = true;
        return kCaptureUnsupported;
    }
    const uint64_t last = stream->last();
    if (stream->is_done(last)) return state().fault_of(stream->device);
    stream->allow(last);
    return kNotReady;
}

int make_event(Event** event, bool timing) {
    if (state().launched[static_cast<size_t>(current_device)])
        ++state().calls["event beside kernels"];
    *event = new Event{timing, nullptr, current_device};
    state().events.insert(*event);
    return 0;
}

int destroy_event(void* handle) { return destroy(state().events, handle); }

// While capturing an event would become part of the graph: the fakes have no such nodes.
int record_event(void* event, void* stream) {
    Event* e = find_event(event);
    Stream* s = find_stream(stream);
    if (!e || !s || e->device != s->device) return kInvalidHandle;
    if (s->capture) return kInvalidValue;
    auto mark = std::make_shared<Mark>();
    mark->stream = s;
    e->mark = mark;
    mark->ticket = s->submit([mark] {
        mark->time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                            std::chrono::steady_clock::now().time_since_epoch())
                            .count();
    });
    return 0;
}

// A thread that captures may not ask for any event (PyTorch's allocators relax the mode for
// it).
int query_event(Call& call, void* event) {
    Event* e = find_event(event);
    if (!e) return kInvalidHandle;
    if (call.unsafe().code) return call.code;
    if (!e->mark || state().streams.count(e->mark->stream) == 0) return 0;
    if (e->mark->stream->is_done(e->mark->ticket)) {
        const std::chrono::microseconds late(std::exchange(state().seen_late_us, 0));
        if (late.count() > 0) std::this_thread::sleep_for(late);
        return state().fault_of(e->mark->stream->device);
    }
    e->mark->stream->allow(e->mark->ticket);
    return kNotReady;
}

int elapsed(float* ms, void* from, void* to) {
    Event *a = find_event(from), *b = find_event(to);
    if (!a || !b || !a->timing || !b->timing || !a->mark || !b->mark) return kInvalidHandle;
    for (Event* e : {a, b})
        if (state().streams.count(e->mark->stream) == 0 ||
            !e->mark->stream->is_done(e->mark->ticket))
            return kNotReady;
    *ms = static_cast<float>(static_cast<double>(b->mark->time_ns - a->mark->time_ns) / 1e6);
    return 0;
}

int begin_capture(void* stream, int mode) {
    Stream* s = find_stream(stream);
    if (!s || mode < 0 || mode > 2) return kInvalidValue;
    if (s->capture || capturing) return kInvalidValue;
    s->last_launch.clear();
    s->capture = std::make_unique<Capture>();
    s->capture->thread = std::this_thread::get_id();
    capturing = s;
    return 0;
}

int end_capture(const Call& call, void* stream, Graph** graph) {
    Stream* s = find_stream(stream);
    *graph = nullptr;
    if (!s || !s->capture) return kCaptureUnmatched;
    if (s->capture->thread != std::this_thread::get_id()) return kCaptureWrongThread;
    const std::unique_ptr<Capture> capture = std::move(s->capture);
    capturing = nullptr;
    if (call.code || capture->invalid) return call.code ? call.code : kCaptureInvalidated;
    *graph = new Graph{capture->nodes};
    state().graphs.insert(*graph);
    return 0;
}

int instantiate(GraphExec** exec, void* graph) {
    Graph* g = known(state().graphs, graph);
    if (!g) return kInvalidValue;
    *exec = new GraphExec{g->nodes};
    state().execs.insert(*exec);
    return 0;
}

int launch_graph(void* exec, void* stream) {
    GraphExec* e = known(state().execs, exec);
    Stream* s = find_stream(stream);
    if (!e || !s) return kInvalidValue;
    s->submit([nodes = e->nodes, device = s->device] {
        for (const Work& node : nodes)
            if (!state().fault_of(device)) node();
    });
    return 0;
}

int destroy_graph(void* graph) { return destroy(state().graphs, graph); }
int destroy_exec(Call& call, void* exec) {
    if (!known(state().execs, exec)) return kInvalidValue;
    settle(call, {current_device});
    return destroy(state().execs, exec);
}

}  // namespace cleave::fake
