// SPDX-License-Identifier: Apache-2.0
#include "runtime/exchange/communication.h"

#include <algorithm>

#include "planner/cost/peer_exchange.h"

namespace cleave::runtime {

using namespace planner;

std::vector<std::string> device_names(const Plan& plan, const std::vector<DeviceId>& devices) {
    std::vector<std::string> names;
    for (DeviceId device : devices) names.push_back(plan.machine.device(device).name);
    return names;
}

int position_of(DeviceId device, const std::vector<DeviceId>& devices) {
    auto found = std::find(devices.begin(), devices.end(), device);
    return found == devices.end() ? -1 : static_cast<int>(found - devices.begin());
}

namespace {

int64_t column_offset(const PlacedView& view, Range columns) {
    CLEAVE_CHECK(columns.begin >= view.columns.begin && columns.end <= view.columns.end)
        << "columns " << columns.begin << ".." << columns.end << " of a box with "
        << view.columns.begin << ".." << view.columns.end;
    return dtype_bytes(view.dtype, columns.begin - view.columns.begin);
}

}  // namespace

void stage_out(Device& device, const PlacedView& view, Range columns, int64_t rows,
               std::byte* staging) {
    if (rows == 0 || columns.empty()) return;
    int64_t bytes = dtype_bytes(view.dtype, columns.size());
    device.copy_out(view.address + static_cast<DeviceAddress>(column_offset(view, columns)),
                    staging, {rows, bytes, view.row_bytes(), bytes});
}

void stage_in(Device& device, const PlacedView& view, Range columns, int64_t rows,
              const std::byte* staging) {
    if (rows == 0 || columns.empty()) return;
    int64_t bytes = dtype_bytes(view.dtype, columns.size());
    device.copy_in(staging, view.address + static_cast<DeviceAddress>(column_offset(view, columns)),
                   {rows, bytes, bytes, view.row_bytes()});
}

std::unique_ptr<Communication> make_communication(const CommunicationContext& context,
                                                  const Step& step) {
    if (goes_by_peers(step)) return make_peer_exchange(context, step);
    if (const Transfer* transfer = step.transfer()) return make_transfer(context, *transfer);
    const Collective& collective = *step.collective();
    const bool gathers = collective.op == CollectiveOp::kAllGather;
    if (collective.path == Path::kVendor) {
        if (!context.vendor_groups)
            throw UserError(
                "{} goes by path '{}', and no library of collectives is open for these devices; "
                "make the plan anew for them",
                context.label, path_name(collective.path));
        return gathers ? make_vendor_gather(context, collective)
                       : make_vendor_all_reduce(context, collective);
    }
    if (gathers) return make_all_gather(context, collective);
    return make_all_reduce(context, collective);
}

}  // namespace cleave::runtime
