// SPDX-License-Identifier: Apache-2.0
extern "C" void of_another_library();
extern "C" void calls_it();
extern "C" void calls_it() { of_another_library(); }
