/* SPDX-License-Identifier: Apache-2.0
 * usage: run_bundled MODEL: runs three requests at once on two host devices, and prints the tokens
 * of each on a line. */
#include <cleave/cleave_engine.h>
#include <stdio.h>

typedef struct {
    int32_t tokens[64];
    size_t count;
    int ends, behind;
} Text;

static void take(void* user, const cleave_event* event) {
    Text* text = user;
    if (text->ends) text->behind = 1;
    for (size_t i = 0; i < event->num_tokens && text->count < 64; ++i)
        text->tokens[text->count++] = event->tokens[i];
    text->ends += event->ends_request;
}

static int failed(const char* what) {
    fprintf(stderr, "%s: %s\n", what, cleave_last_error());
    return 1;
}

int main(int argc, char** argv) {
    cleave_graph* graph = NULL;
    cleave_machine* machine = NULL;
    cleave_plan* plan = NULL;
    cleave_engine* engine = NULL;
    if (argc != 2 || cleave_graph_import(argv[1], NULL, &graph)) return failed("import");
    if (cleave_machine_from_devices("host[0-1]", &machine)) return failed("devices");
    cleave_plan_options how = {0};
    how.struct_size = sizeof how;
    how.batch = 2;
    how.context = 64;
    how.tensor_parallel = 2;
    if (cleave_plan_make(graph, machine, &how, &plan)) return failed("plan");
    if (cleave_engine_new(plan, NULL, &engine)) return failed("engine");
    cleave_machine_free(machine);
    cleave_graph_free(graph);
    cleave_plan_free(plan);

    const int32_t prompt[] = {1, 40, 7};
    cleave_request request = {0};
    request.struct_size = sizeof request;
    request.prompt = prompt;
    request.num_prompt = 3;
    request.max_new_tokens = 6;
    request.ignore_eos = 1;
    Text texts[3] = {0};
    for (int i = 0; i < 3; ++i)
        if (cleave_engine_add(engine, &request, take, &texts[i], NULL)) return failed("add");
    request.max_new_tokens = 100;
    if (cleave_engine_add(engine, &request, take, NULL, NULL) != CLEAVE_INVALID_INPUT)
        return failed("a request that never fits");
    if (cleave_engine_add(NULL, &request, take, NULL, NULL) != CLEAVE_INVALID_ARGUMENT)
        return failed("a null engine");
    int32_t ended = 0;
    if (cleave_engine_drain(engine, 60, &ended) || !ended) return failed("drain");
    request.max_new_tokens = 6;
    if (cleave_engine_add(engine, &request, take, NULL, NULL) != CLEAVE_DRAINING)
        return failed("a request behind the end");
    cleave_engine_statistics statistics = {0};
    statistics.struct_size = sizeof statistics;
    if (cleave_engine_get_statistics(engine, &statistics)) return failed("statistics");
    if (statistics.finished_length != 3 || statistics.blocks_held != 0) return failed("blocks");
    cleave_engine_free(engine);
    for (int i = 0; i < 3; ++i) {
        if (texts[i].ends != 1 || texts[i].behind) return failed("events");
        for (size_t t = 0; t < texts[i].count; ++t)
            printf("%s%d", t ? "," : "", texts[i].tokens[t]);
        printf("\n");
    }
    return 0;
}
