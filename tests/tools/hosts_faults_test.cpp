// SPDX-License-Identifier: Apache-2.0
// Faults of a run on several hosts: whatever happens to a rank, the others say why and end with an
// error, and no process stays. Kernels of GPUs on the CPU are slow enough to be met in each phase.
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/support/ranks.h"

using namespace cleave;
using namespace cleave::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

// In front of both scripts: how mpirun, and then each rank of whose number there is a file, ends.
constexpr const char* kAwait = R"script(
await_mpirun() {
    wait $mpirun
    echo "mpirun: $?"
}
await_ranks() {
    for pid in $(cat "$dir"/pid.*); do
        for ((i = 0; i < 150; ++i)); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
        ! kill -0 $pid 2>/dev/null || echo "stays: $pid"
    done
}
)script";

// What `script` prints of Cleave on two ranks, of which no process stays. It gets a folder, then
// `given`, then what starts the ranks ($ranks_words has how many words) and the program.
std::string ended_ranks(const char* script, const std::vector<std::string>& given,
                        const std::vector<std::string>& cleave) {
    const TemporaryFolder folder;
    const std::vector<std::string> ranks = mpirun(2);
    std::vector<std::string> command{"env",
                                     "ranks_words=" + std::to_string(ranks.size()),
                                     "bash",
                                     "-c",
                                     std::string(kAwait) + script,
                                     "ranks",
                                     folder.path().string()};
    command.insert(command.end(), given.begin(), given.end());
    command.insert(command.end(), ranks.begin(), ranks.end());
    command.emplace_back(CLEAVE_BINARY);
    command.insert(command.end(), cleave.begin(), cleave.end());
    const CommandResult result = run_program(command);
    INFO(result.output << result.error);
    REQUIRE(result.exit_code == 0);
    CHECK_THAT(result.output, !Contains("stays:"));
    return result.output;
}

// DIR WHEN WHOM SIGNAL PROGRAM...: starts PROGRAM on two ranks, sends SIGNAL once the run is so
// far (PAUSE stops it for 2.5 s), and says how all ended. Each rank's process has its number and
// its words in DIR.
constexpr const char* kScript = R"script(
dir=$1 when=$2 whom=$3 signal=$4
shift 4
[[ $when != load ]] || export XDG_CACHE_HOME=$dir
"${@:1:$ranks_words}" bash -c 'echo $$ > "$0/pid.$OMPI_COMM_WORLD_RANK"; exec "$@" 2> "$0/err.$OMPI_COMM_WORLD_RANK"' \
    "$dir" "${@:$((ranks_words + 1))}" > "$dir/out" 2> "$dir/err" < /dev/null &
mpirun=$!
written() { [[ $(stat -c %s "$1" 2>/dev/null || echo 0) -gt $2 ]]; }
ready() {
    case $when in
    load) grep -qs 'ranks on' "$dir/err.0" ;;  # they have met, and compile: the cache is empty
    prefill) written "$dir/out" 0 ;;        # the prompt is written before the first pass
    decode) written "$dir/out" 40 ;;        # and new text behind it after each token
    esac
}
until written "$dir/pid.0" 0 && written "$dir/pid.1" 0 && ready; do
    kill -0 $mpirun 2>/dev/null || { cat "$dir"/err*; exit 1; }
    sleep 0.02
done
# $mpirun is timeout(1), whose child mpirun is.
if [[ $whom == mpirun ]]; then whom=$(tr -d ' ' < /proc/$mpirun/task/$mpirun/children); else whom=$(cat "$dir/pid.$whom"); fi
if [[ $signal == PAUSE ]]; then
    kill -s STOP "$whom"
    sleep 2.5
    [[ $(cut -d ' ' -f 3 "/proc/$whom/stat") == T ]] || echo "it was not stopped"
    signal=CONT
fi
kill -s "$signal" "$whom"
await_mpirun
await_ranks
cat "$dir"/err*
)script";

struct Ended {
    bool failed;  // mpirun's code is not 0
    std::string words;
};

Ended with_fault(const std::string& when, const std::string& whom, const std::string& signal,
                 const std::string& tokens = "400") {
    const std::string output =
        ended_ranks(kScript, {when, whom, signal},
                    {"run", bundled_model().string(), "--devices", "simt:sm_90a", "--pp", "2",
                     "--ignore-eos", "--max-new-tokens", tokens, "--prompt", "Once upon a time"});
    return {!Contains("mpirun: 0\n").match(output), output};
}

bool says_lost(const std::string& words, const std::string& rank) {
    return (Contains(rank + " has died or cannot be reached") ||
            Contains("the connection to " + rank + " broke") ||
            Contains(rank + " gave no sign of life") || Contains(rank + " ended"))
        .match(words);
}

}  // namespace

TEST_CASE("a rank that is killed in load, prefill or decode ends the run, and no process stays",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    using Case = std::pair<std::string, std::string>;
    for (const auto& [when, whom] :
         {Case{"load", "1"}, Case{"prefill", "1"}, Case{"decode", "1"}, Case{"decode", "0"}}) {
        INFO(whom << " killed in " << when);
        const Ended ended = with_fault(when, whom, "KILL");
        CHECK(ended.failed);
        CHECK_THAT(ended.words, Contains("exited on signal 9"));
        // And the other one's own words.
        CHECK(says_lost(ended.words, "rank " + whom));
    }
}

TEST_CASE("a rank whose kernel takes longer than mpirun waits says why it ends, too", "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const TemporaryFolder folder;
    const std::string shape = (folder.path() / "config.json").string(),
                      model = (folder.path() / "model").string();
    std::ofstream(shape) << Json{{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"hidden_size", 1024},
                                 {"intermediate_size", 16384},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 8},
                                 {"vocab_size", 1024},
                                 {"max_position_embeddings", 2048}};
    const CommandResult made = run_cleave({"model", shape, "--dtype", "f16", "-o", model});
    INFO(made.error);
    REQUIRE(made.exit_code == 0);
    // A product of this prompt takes seconds without the wide vectors of today's CPUs.
    std::string prompt;
    while (prompt.size() < 6500) prompt += "Once upon a time ";
    const std::string output = ended_ranks(
        kScript, {"prefill", "1", "KILL"},
        {"run", model + "/model.onnx", "--tokenizer", bundled_model().parent_path().string(),
         "--devices", "host", "--pp", "2", "--cpu-arch", "x86-64", "--prompt", prompt,
         "--prefill-chunk", "2048", "--ignore-eos", "--max-new-tokens", "4"});
    INFO(output);
    CHECK_THAT(output, Contains("cleave:"));
    CHECK(says_lost(output, "rank 1"));
}

TEST_CASE("a rank that is stopped is lost after 5 s, which the other says", "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const Ended ended = with_fault("decode", "1", "STOP");
    CHECK(ended.failed);
    CHECK_THAT(ended.words, Contains("rank 1 gave no sign of life for 5 s"));
}

TEST_CASE("a rank that is stopped for two seconds and goes on is no error", "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const Ended ended = with_fault("decode", "1", "PAUSE", "60");
    INFO(ended.words);
    CHECK(!ended.failed);
    CHECK_THAT(ended.words, !Contains("cleave:") && !Contains("it was not stopped"));
}

TEST_CASE("an interrupted or killed mpirun ends all ranks, which say so, and no process stays",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    for (const auto& [signal, why] : {std::pair{"INT", "mpirun ended all ranks"},
                                      {"KILL", "mpirun, or its daemon on this host, has"}}) {
        const Ended ended = with_fault("decode", "mpirun", signal);
        INFO(ended.words);
        CHECK(ended.failed);
        // Each by itself, or one has heard of it from the other.
        const size_t first = ended.words.find(why);
        CHECK(first != std::string::npos);
        CHECK(ended.words.rfind(why) != first);
    }
}

namespace {

// DIR BUSY SIGNAL PROGRAM...: starts a server on two ranks, with a request that streams if BUSY is
// 1, sends SIGNAL to rank 1, and says how all ended, and what the client read last.
constexpr const char* kServer = R"script(
dir=$1 busy=$2 signal=$3
shift 3
"${@:1:$ranks_words}" bash -c 'echo $$ > "$0/pid.$OMPI_COMM_WORLD_RANK"; exec "$@" 2> "$0/err.$OMPI_COMM_WORLD_RANK"' \
    "$dir" "${@:$((ranks_words + 1))}" 2> "$dir/err" < /dev/null &
mpirun=$!
until grep -qs 'listening on' "$dir/err.0"; do kill -0 $mpirun || { cat "$dir/err"; exit 1; }; sleep 0.05; done
at=$(sed -n 's/.*listening on \(http[^ ]*\).*/\1/p' "$dir/err.0")
client=
if [[ $busy == 1 ]]; then
    curl -sN "$at/v1/completions" -d '{"prompt": "Once upon a time", "max_tokens": 400, "stream": true}' > "$dir/stream" &
    client=$!
    until [[ -s $dir/stream ]]; do sleep 0.02; done
fi
kill -s "$signal" "$(cat "$dir/pid.1")"
await_mpirun
[[ -z $client ]] || { wait $client; tail -n 2 "$dir/stream"; }
await_ranks
cat "$dir/err.0"
)script";

}  // namespace

TEST_CASE("a server that loses a rank, idle or busy, ends with that rank's name, and so do streams",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    for (const auto& [signal, busy] :
         {std::pair{"KILL", false}, {"KILL", true}, {"STOP", false}, {"STOP", true}}) {
        INFO(signal << (busy ? ", busy" : ", idle"));
        const std::string output = ended_ranks(kServer, {busy ? "1" : "0", signal},
                                               {"serve", bundled_model().string(), "--devices",
                                                "simt:sm_90a", "--pp", "2", "--port", "0"});
        INFO(output);
        CHECK_THAT(output, !Contains("mpirun: 0\n"));
        CHECK_THAT(output, Contains("cleave: rank 1 "));
        if (busy) CHECK_THAT(output, Contains("{\"error\":{\"message\":\"rank 1 "));
    }
}

TEST_CASE("processes that another launcher started refuse to do all the work each", "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    for (const char* variable : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE"}) {
        const CommandResult result =
            run_program({"env", std::string(variable) + "=2", "OMPI_ALLOW_RUN_AS_ROOT=1",
                         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", CLEAVE_BINARY, "run",
                         bundled_model().string(), "--prompt", "Once", "--max-new-tokens", "2"});
        INFO(variable << ": " << result.error);
        CHECK(result.exit_code == 1);
        CHECK(result.output.empty());
        CHECK_THAT(result.error, Contains(std::string(variable) + "=2") && Contains("mpirun"));
    }
}

TEST_CASE("ranks with other weights or another build refuse the run before anything loads",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const TemporaryFolder folder;
    const std::string dir = folder.path().string(), binary = CLEAVE_BINARY;
    const std::string lib = (std::filesystem::path(binary).parent_path().parent_path() / "lib");
    // Each rank works in a folder of its own, with a copy of the model and of the program.
    const std::string script =
        "cd \"$0\"; for r in 0 1; do mkdir -p $r/bin; cp \"$1\" $r/model.onnx; cp \"$2\" "
        "$r/bin/cleave; ln -s \"$3\" $r/lib; done";
    const CommandResult made =
        run_program({"bash", "-ec", script, dir, bundled_model().string(), binary, lib});
    INFO(made.error);
    REQUIRE(made.exit_code == 0);
    const auto run = [&] {
        std::vector<std::string> command = mpirun(2);
        for (const char* word :
             {"bash", "-c", "cd \"$0/$OMPI_COMM_WORLD_RANK\" && exec bin/cleave \"$@\""})
            command.emplace_back(word);
        for (const std::string& word :
             {dir, std::string("run"), std::string("model.onnx"), std::string("--devices"),
              std::string("host"), std::string("--pp"), std::string("2"), std::string("--prompt"),
              std::string("Once"), std::string("--tokenizer"),
              bundled_model().parent_path().string(), std::string("--max-new-tokens"),
              std::string("2")})
            command.push_back(word);
        return run_program(command);
    };
    CHECK(run().exit_code == 0);
    const auto change = [&](const std::string& file, const std::string& how) {
        REQUIRE(run_program({"bash", "-ec", how, dir + "/1/" + file}).exit_code == 0);
    };
    change("model.onnx", "printf x | dd of=\"$0\" bs=1 seek=2000000 conv=notrunc");
    const CommandResult other_weights = run();
    CHECK(other_weights.exit_code == 1);
    CHECK_THAT(other_weights.error, Contains("rank 1: the model's files are not those of rank 0"));
    change("model.onnx", "printf x >> \"$0\"");
    CHECK_THAT(run().error, Contains("where the plan was made"));
    change("model.onnx", "rm \"$0\"");
    CHECK_THAT(run().error, Contains("reads the weights from its own copy"));
    change("bin/cleave", "printf x >> \"$0\"");
    const CommandResult other_build = run();
    CHECK(other_build.exit_code == 1);
    CHECK_THAT(other_build.error, Contains("all ranks of a run need one build of Cleave"));
}

namespace {

// A run of two ranks that ended with these words, said by rank 0 and by rank 1, before anything
// ran.
void check_refused_on_both(const CommandResult& result, const std::string& words,
                           const std::string& also) {
    INFO(result.error);
    CHECK(result.exit_code == 1);
    CHECK(result.output.empty());
    CHECK_THAT(result.error, Contains(words) && Contains(also));
    CHECK(result.error.find(words) != result.error.rfind(words));
}

}  // namespace

TEST_CASE("a plan with a device that its rank does not have is refused on all, by that rank's name",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    const TemporaryFolder folder;
    const std::string machine = (folder.path() / "machine.json").string(),
                      card = (folder.path() / "card.json").string(),
                      plan = (folder.path() / "plan").string();
    REQUIRE(run_ranks(2, {"devices", "--devices", "host", "-o", machine}).exit_code == 0);
    REQUIRE(run_cleave({"devices", "--devices", "sim:h100[0]", "-o", card}).exit_code == 0);
    // The second host's device is a card now, which no machine of the tests has.
    std::string text = read_file(machine);
    Json two = Json::parse(text);
    Json device = Json::parse(read_file(card))["devices"][0];
    const std::string was = two["devices"][1]["name"];
    device.erase("memory_domain");
    device.update(Json{{"name", "cuda[0]@1"},
                       {"kind", "cuda"},
                       {"host", two["devices"][1]["host"]},
                       {"identity", "GPU-1234"}});
    two["devices"][1] = device;
    text = two.dump();
    for (size_t at = 0; (at = text.find(was)) != std::string::npos;)
        text.replace(at, was.size(), "cuda[0]@1");
    std::ofstream(machine) << text;
    const CommandResult planned = run_cleave(
        {"plan", bundled_model().string(), "--machine", machine, "--pp", "2", "-o", plan});
    INFO(planned.error);
    REQUIRE(planned.exit_code == 0);
    check_refused_on_both(run_ranks(2, {"run", plan, "--prompt", "Once"}),
                          "rank 1: cuda[0]@1: the plan was made for other devices", "GPU-1234");
}

namespace {

// Two ranks, of which rank 1 begins by `how`: words of a shell.
CommandResult with_rank_1(const std::string& how, const std::vector<std::string>& words) {
    std::vector<std::string> command = mpirun(2);
    for (const std::string& word :
         {std::string("bash"), std::string("-c"),
          "[[ $OMPI_COMM_WORLD_RANK == 0 ]] || { " + how + "; }; exec \"$@\"", std::string("rank"),
          std::string(CLEAVE_BINARY), std::string("run"), bundled_model().string(),
          std::string("--devices"), std::string("host"), std::string("--pp"), std::string("2"),
          std::string("--prompt"), std::string("Once"), std::string("--max-new-tokens"),
          std::string("4")})
        command.push_back(word);
    command.insert(command.end(), words.begin(), words.end());
    return run_program(command);
}

}  // namespace

TEST_CASE("a rank without memory for its part of the plan is named on all before anything runs",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    check_refused_on_both(with_rank_1("ulimit -v 1500000", {"--kv-tokens", "1000000"}),
                          "rank 1: allocating", "for the kv arena failed");
}

TEST_CASE("a full disk on one rank costs its kept kernels, and on rank 0 what it was to write",
          "[tools]") {
    if (const std::string why = no_mpi(); !why.empty()) CLEAVE_SKIP(why);
    if (run_program({"unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"}).exit_code != 0)
        CLEAVE_SKIP("no disk of its own for a process here (unshare -m, mount)");
    const TemporaryFolder folder;
    const std::string disk = folder.path().string(), full = "mount -t tmpfs -o size=64k tmpfs " +
                                                            disk + "; head -c 64k /dev/zero > " +
                                                            disk + "/all || true; ";
    const CommandResult kept =
        with_rank_1("exec unshare -m bash -c '" + full + "export XDG_CACHE_HOME=" + disk +
                        "; exec \"$@\"' rank \"$@\"",
                    {});
    INFO(kept.error);
    CHECK(kept.exit_code == 0);
    const CommandResult lost = run_program({"unshare",
                                            "-m",
                                            "bash",
                                            "-c",
                                            full + "exec \"$@\"",
                                            "full",
                                            "env",
                                            "OMPI_ALLOW_RUN_AS_ROOT=1",
                                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                            "timeout",
                                            "600",
                                            "mpirun",
                                            "--oversubscribe",
                                            "--bind-to",
                                            "none",
                                            "-np",
                                            "2",
                                            CLEAVE_BINARY,
                                            "run",
                                            bundled_model().string(),
                                            "--devices",
                                            "host",
                                            "--pp",
                                            "2",
                                            "--prompt",
                                            "Once",
                                            "--max-new-tokens",
                                            "4",
                                            "--dump-logits",
                                            disk + "/logits"});
    INFO(lost.error);
    CHECK(lost.exit_code == 1);
    CHECK_THAT(lost.error, Contains(disk + "/logits") && Contains("No space left on device"));
}
