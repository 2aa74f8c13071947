// SPDX-License-Identifier: Apache-2.0
function addMeasured() {}
function fillMeasured() {}
function roomOfAsk() {}
