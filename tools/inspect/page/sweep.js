// SPDX-License-Identifier: Apache-2.0
// Filled when `plan --sweep` results are carried (key `sweep`).
function drawSweep() {}
