// SPDX-License-Identifier: Apache-2.0
// Where hosts and devices are in the picture of the machine. Plain geometry, in units of the picture.

const hostPad = 14, hostHead = 26;
// Devices of a host: one in the middle, few in a row, more around a circle, so that every link between two is a chord.
function insideHost(n, size) {
    const places = [];
    if (n <= 3) {
        const gap = size * 2.6;
        for (let i = 0; i < n; ++i) places.push([size / 2 + i * gap, size / 2]);
        return {width: size + (n - 1) * gap, height: size, places, round: false};
    }
    const radius = Math.max(size * 1.25, n * size * (hosts.length === 1 ? 2.1 : 1.7) / (2 * Math.PI));
    for (let i = 0; i < n; ++i) {
        const a = -Math.PI / 2 + 2 * Math.PI * (i + 0.5) / n;
        places.push([radius + size / 2 + radius * Math.cos(a), radius + size / 2 + radius * Math.sin(a)]);
    }
    return {width: 2 * radius + size, height: 2 * radius + size, places, round: true};
}
// Hosts in rows, as wide as the picture; a bus under each row where there are several.
function layoutMachine(width) {
    const most = Math.max(...hosts.map(h => h.devices.length));
    const size = hosts.length > 8 ? 17 : hosts.length > 2 ? 24 : most > 16 ? 22 : 40;
    const boxes = hosts.map(h => {
        const inside = insideHost(h.devices.length, size);
        // Few hosts have room for names beside their devices.
        const beside = hosts.length <= 2 && inside.round ? 84 : 0;
        return {host: h, inside, beside, width: Math.max(inside.width + 2 * (hostPad + beside), 92),
                height: inside.height + 2 * hostPad + hostHead + (beside ? 24 : 0)};
    });
    const wide = Math.max(...boxes.map(b => b.width)), tall = Math.max(...boxes.map(b => b.height));
    const gapX = 26, gapY = hosts.length > 1 ? 54 : 20;
    const perRow = Math.max(1, Math.min(hosts.length, Math.floor((width - 20 + gapX) / (wide + gapX))));
    const rows = Math.ceil(hosts.length / perRow);
    // Rows as even as they can be.
    const even = Math.ceil(hosts.length / rows);
    const devices = new Map();
    boxes.forEach((b, i) => {
        b.row = Math.floor(i / even);
        const inRow = Math.min(even, hosts.length - b.row * even);
        const left = (width - (inRow * wide + (inRow - 1) * gapX)) / 2;
        b.x = left + (i % even) * (wide + gapX) + (wide - b.width) / 2;
        b.y = 10 + b.row * (tall + gapY);
        b.height = tall;
        const dx = b.x + (b.width - b.inside.width) / 2, dy = b.y + hostHead + (tall - hostHead - b.inside.height) / 2;
        b.host.devices.forEach((name, k) =>
            devices.set(name, {x: dx + b.inside.places[k][0], y: dy + b.inside.places[k][1], box: b}));
    });
    return {boxes, devices, size, width, rows, tall, gapY, even, height: 10 + rows * tall + (rows - 1) * gapY + (hosts.length > 1 ? gapY : 12)};
}
// A chord between two devices: a line on a circle, a bow over neighbours in a row; two ways beside each other.
function chord(a, b, box) {
    if (box.inside.round || Math.abs(a.x - b.x) < 1)
        return "M" + a.x + " " + a.y + "L" + b.x + " " + b.y;
    const bow = Math.min(34, Math.abs(b.x - a.x) * 0.32) * (a.x < b.x ? -1 : 1);
    return "M" + a.x + " " + a.y + "Q" + (a.x + b.x) / 2 + " " + (a.y + bow) + " " + b.x + " " + b.y;
}
