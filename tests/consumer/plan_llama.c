/* SPDX-License-Identifier: Apache-2.0
 * The planner in ten lines of C: a Llama on four GPUs that this machine need not have. */
#include <cleave/cleave.h>
#include <stdio.h>

int main(void) {
    cleave_graph* graph = NULL;
    cleave_machine* machine = NULL;
    cleave_plan* plan = NULL;
    if (cleave_graph_from_shape("llama-3-8b", NULL, &graph) ||
        cleave_machine_from_devices("sim:h100[0-3]", &machine) ||
        cleave_plan_make(graph, machine, NULL, &plan) ||
        cleave_plan_export_to(plan, "json", "plan"))
        return fprintf(stderr, "%s\n", cleave_last_error()), 1;
    cleave_plan_free(plan), cleave_machine_free(machine), cleave_graph_free(graph);
    return puts("plan/plan.json is written") < 0;
}
