// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "runtime/base/errors.h"
#include "runtime/engine/engine.h"
#include "runtime/text/chat_template.h"
#include "tools/cli/groups.h"
#include "tools/cli/hosts.h"
#include "tools/cli/line_reader.h"
#include "tools/cli/planning.h"
#include "tools/cli/sampling_flags.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"
#include "tools/commands/serving.h"

namespace cleave::tools {
namespace {

struct ChatArguments {
    runtime::Drivers& drivers;
    ModelFlags model;
    PlanFlags plan;
    RunFlags run;
    SamplingFlags sampling;
    std::string tokenizer, system;
    int64_t max_new_tokens = 0;  // 0: what the context leaves
};

// Ctrl-C ends the answer that is being written. Set also by one that comes between the line and its
// answer.
std::atomic<bool> is_interrupted{false};

class AnswerSignal {
public:
    AnswerSignal() {
        struct sigaction action = {};
        action.sa_handler = [](int) { is_interrupted = true; };
        // On a terminal Ctrl-C is a key while a line is typed: what the signal meets there is
        // output, which must not be lost. Elsewhere it has to end the wait for a line.
        if (isatty(STDIN_FILENO) != 0) action.sa_flags = SA_RESTART;
        sigaction(SIGINT, &action, &old_);
    }
    ~AnswerSignal() { sigaction(SIGINT, &old_, nullptr); }
    AnswerSignal(const AnswerSignal&) = delete;
    AnswerSignal& operator=(const AnswerSignal&) = delete;

private:
    struct sigaction old_ = {};
};

// What the engine's thread tells of an answer; it prints it, too.
struct Answer {
    std::mutex mutex;
    std::condition_variable ended;
    std::string text;
    std::optional<runtime::FinishReason> finish;
    std::string message;
    std::exception_ptr lost;  // why its text did not arrive

    // What it throws ends the request, and the engine has no more events of it.
    void take(const runtime::EngineEvent& event) {
        try {
            show_generated(event.text);
            flush_output();
            const std::lock_guard lock(mutex);
            text += event.text;
            if (!event.finish) return;
            message = event.message;
            finish = event.finish;
            ended.notify_all();
        } catch (...) {
            const std::lock_guard lock(mutex);
            lost = std::current_exception();
            ended.notify_all();
            throw;
        }
    }
};

class Conversation {
public:
    Conversation(const ChatArguments& flags, const runtime::ChatTemplate& chat,
                 const runtime::Tokenizer& tokenizer, std::vector<int32_t> stops,
                 runtime::Engine& engine)
        : flags_(flags), chat_(chat), tokenizer_(tokenizer), engine_(engine) {
        request_.sampling = sampling_options(flags.sampling);
        request_.stop_ids = std::move(stops);
        reset();
    }

    void reset() {
        messages_.clear();
        if (!flags_.system.empty()) messages_.push_back({"system", flags_.system});
    }

    // Writes the answer. UserError for a device that failed.
    void say(const std::string& line) {
        messages_.push_back({"user", line});
        runtime::EngineRequest request = request_;
        request.prompt = tokenizer_.encode(chat_.render(messages_), false);
        const int64_t context = engine_.limits().context;
        const int64_t room = context - static_cast<int64_t>(request.prompt.size());
        if (room < 1) {
            tools::say(
                "the conversation's {} tokens exceed the context of {}: /reset begins anew\n",
                request.prompt.size(), context);
            messages_.pop_back();
            return;
        }
        request.max_new_tokens =
            flags_.max_new_tokens > 0 ? std::min(flags_.max_new_tokens, room) : room;
        const std::string text = answer(std::move(request));
        messages_.push_back({"assistant", text});
        show("\n");
        flush_output();
    }

private:
    std::string answer(runtime::EngineRequest request) {
        Answer answer;
        const runtime::EngineAdmission admission = engine_.add(
            std::move(request), [&](const runtime::EngineEvent& event) { answer.take(event); });
        if (!admission.request) throw UserError(admission.reason);
        std::unique_lock lock(answer.mutex);
        // A signal wakes nobody, hence the look every now and then.
        while (!answer.ended.wait_for(lock, std::chrono::milliseconds(20),
                                      [&] { return answer.finish || answer.lost; }))
            if (is_interrupted.exchange(false)) {
                lock.unlock();
                engine_.cancel(*admission.request);
                lock.lock();
            }
        if (answer.lost) std::rethrow_exception(answer.lost);
        if (answer.finish == runtime::FinishReason::kFault) throw UserError(answer.message);
        return answer.text;
    }

    const ChatArguments& flags_;
    const runtime::ChatTemplate& chat_;
    const runtime::Tokenizer& tokenizer_;
    runtime::Engine& engine_;
    runtime::EngineRequest request_;  // but for its prompt
    std::vector<runtime::ChatMessage> messages_;
};

void converse(Conversation& conversation) {
    const AnswerSignal signal;
    LineReader lines("> ");
    const auto next = [&] {
        is_interrupted = false;
        return lines.next();
    };
    while (const auto line = next()) {
        if (line->find_first_not_of(" \t") == std::string::npos) continue;
        if (*line == "/exit") return;
        if (*line == "/reset")
            conversation.reset();
        else if (line->front() == '/')
            say("{}: there are /reset, which begins anew, and /exit\n", *line);
        else
            conversation.say(*line);
    }
    // While a line was read that nobody types.
    if (is_interrupted) throw Cancelled();
}

void run_chat(ChatArguments flags) {
    if (follows(flags.run, flags.drivers)) return;
    note_threads(flags.run);
    TextModel text = load_text_model(flags.model, flags.plan, flags.tokenizer, "chat", "chat with");
    if (!text.chat)
        throw UserError(
            "{} has no chat template (chat_template.jinja, or \"chat_template\" of "
            "tokenizer_config.json): `cleave run --prompt` continues plain text",
            text.template_folder);
    planner::Plan plan = plan_text_model(text, flags.model, flags.plan, flags.run, flags.drivers);
    auto session = open_session(plan, flags.run, flags.drivers);
    runtime::SessionRunner runner(*session);
    runtime::Engine engine(plan, runner, text.tokenizer.get(), {});
    Conversation conversation(flags, *text.chat, *text.tokenizer, text.stop_ids, engine);
    if (stderr_is_terminal())
        say("{} tokens of context. /reset begins anew, Ctrl-C ends an answer, Ctrl-D the chat.\n",
            plan.workload.context);
    say_seed(flags.sampling);
    converse(conversation);
}

}  // namespace

void add_chat(CLI::App& app, runtime::Drivers& drivers) {
    auto flags = std::make_shared<ChatArguments>(ChatArguments{.drivers = drivers});
    CLI::App* command = app.add_subcommand("chat", "a conversation with a model in the terminal");
    add_model_flags(*command, flags->model);
    command->add_option("--system", flags->system, "text of the system, before the conversation")
        ->group(kTextGroup);
    command
        ->add_option("--max-new-tokens", flags->max_new_tokens,
                     "tokens of an answer; default: what the context leaves")
        ->check(whole_number(1, 1 << 30))
        ->group(kTextGroup);
    add_sampling_flags(*command, flags->sampling);
    command
        ->add_option("--tokenizer", flags->tokenizer,
                     "tokenizer.json, tokenizer.model, or their folder; default: beside the model")
        ->type_name("PATH")
        ->group(kTextGroup);
    add_plan_flags(*command, flags->plan);
    add_run_flags(*command, flags->run);
    add_keep_packed(*command, flags->run);
    command->footer("Example: cleave chat models/bundled --devices host");
    command->callback([flags] {
        draw_seed(flags->sampling);
        run_chat(*flags);
    });
}

}  // namespace cleave::tools
