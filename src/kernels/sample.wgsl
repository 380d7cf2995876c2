// ids[first + r] = argmax_v ((logits[r, v] - max) / temperature + gumbel(seed, position, v)) over
// the tokens that top-k, top-p and min-p keep (op.h says which); with temperature 0, argmax_v
// logits[r, v], the lowest id among equals. 0xffffffff where the row holds NaN or +infinity or
// nothing but -infinity.
//
// Shapes: logits f32 [rows, vocab]; choices op_sample_params [first + rows], of which the last
//   `rows` belong to them; ids u32 [first + rows] likewise.
// Mapping: a workgroup of 256 lanes a row, folded into two grid dimensions; lanes stride the
//   vocabulary.
// Needs: nothing. 6.3 KiB of workgroup memory.
// Why this version: no sort. A float's bits, turned so that they order as the float does, make a
//   32-bit key; the threshold of top-k is the largest key that at least k keys reach, of top-p the
//   largest whose tail holds the probability, and each is found a hexadecimal digit at a time:
//   eight passes with 15 counts or sums at once. A Gumbel maximum needs no cumulative sum and each
//   token's noise depends on nothing but (seed, position, id).
// Reference: ref_sample.

struct Params {
    rows: u32,
    vocab: u32,
    first: u32,
    digits: u32,         // 8: hexadecimal digits of a key. A loop of a length that compilers see
                         // is unrolled by some into a program that takes half a minute to compile.
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
// Two a row: (temperature, top_k, top_p, min_p), (the seed's low word, its high word, position, -).
@group(0) @binding(1) var<storage, read> choices: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(1) @binding(0) var<uniform> params: Params;

const LANES = 256u;
const NO_TOKEN = 0xffffffffu;
const KEY_PLUS_INFINITY = 0xff800000u;
const KEY_MINUS_INFINITY = 0x007fffffu;
const COLD = 1e-6;   // temperatures up to this are 0

var<workgroup> lane_keys: array<u32, 256>;
var<workgroup> lane_ids: array<u32, 256>;
var<workgroup> lane_sums: array<vec4<f32>, 256>;
var<workgroup> group_sums: array<vec4<f32>, 16>;
var<workgroup> best_key: u32;

// Order of keys = order of floats; -0 counts as 0, every NaN is above +infinity.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    if ((bits << 1u) == 0u) {
        return 0x80000000u;
    }
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0xffffffffu;
    }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn value_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}

// The largest key and, of equal keys, the lowest id over all lanes; the same in every lane.
fn best_of_lanes(lane: u32, key: u32, id: u32) -> vec2<u32> {
    workgroupBarrier();
    lane_keys[lane] = key;
    lane_ids[lane] = id;
    workgroupBarrier();
    var best = vec2<u32>(key, id);
    if (lane < 16u) {
        for (var i = lane; i < LANES; i += 16u) {
            let better = lane_keys[i] > best.x || (lane_keys[i] == best.x && lane_ids[i] < best.y);
            best = select(best, vec2<u32>(lane_keys[i], lane_ids[i]), better);
        }
    }
    workgroupBarrier();
    if (lane < 16u) {
        lane_keys[lane] = best.x;
        lane_ids[lane] = best.y;
    }
    workgroupBarrier();
    for (var i = 0u; i < 16u; i++) {
        let better = lane_keys[i] > best.x || (lane_keys[i] == best.x && lane_ids[i] < best.y);
        best = select(best, vec2<u32>(lane_keys[i], lane_ids[i]), better);
    }
    return best;
}

struct Search {
    start: u32,      // of the row
    floor: u32,      // keys below do not count
    highest: f32,    // the largest logit
    by_count: bool,  // a key weighs 1, else exp(logit - highest)
    need: f32,       // what the keys from the threshold up weigh; without by_count, a share of all
}

struct Sums {
    s0: vec4<f32>,
    s1: vec4<f32>,
    s2: vec4<f32>,
    s3: vec4<f32>,
}

// The weights of the keys >= base + digit << shift, for the 16 digits. Every threshold adds in the
// same order, so that a higher one never weighs more by rounding.
fn tails(lane: u32, search: Search, base: u32, shift: u32) -> Sums {
    let step = vec4<u32>(0u, 1u, 2u, 3u) << vec4<u32>(shift);
    let next = vec4<u32>(4u << shift);
    let from0 = vec4<u32>(base) + step;
    let from1 = from0 + next;
    let from2 = from1 + next;
    let from3 = from2 + next;
    var sums = Sums(vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0));
    for (var i = lane; i < params.vocab; i += LANES) {
        let value = logits[search.start + i];
        let key = key_of(value);
        let weight = select(exp(value - search.highest), 1.0, search.by_count);
        let counted = vec4<f32>(select(0.0, weight, key >= search.floor));
        let keys = vec4<u32>(key);
        sums.s0 += select(vec4<f32>(0.0), counted, keys >= from0);
        sums.s1 += select(vec4<f32>(0.0), counted, keys >= from1);
        sums.s2 += select(vec4<f32>(0.0), counted, keys >= from2);
        sums.s3 += select(vec4<f32>(0.0), counted, keys >= from3);
    }
    return sums;
}

// The sum over all lanes, the same in every lane.
fn sum_of_lanes(lane: u32, value: vec4<f32>) -> vec4<f32> {
    lane_sums[lane] = value;
    workgroupBarrier();
    if (lane < 16u) {
        var sum = vec4<f32>(0.0);
        for (var i = lane; i < LANES; i += 16u) {
            sum += lane_sums[i];
        }
        group_sums[lane] = sum;
    }
    workgroupBarrier();
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < 16u; i++) {
        sum += group_sums[i];
    }
    return sum;
}

// The largest threshold such that the keys at or above it weigh `need`, a digit at a time from the
// top.
fn find_threshold(lane: u32, search: Search) -> u32 {
    var threshold = 0u;
    var need = search.need;
    for (var digit = 0u; digit < params.digits; digit++) {
        let shift = 28u - 4u * digit;
        let sums = tails(lane, search, threshold, shift);
        var chosen = 0u;
        for (var part = 0u; part < params.digits / 2u; part++) {
            let low = select(sums.s0, sums.s1, part == 1u);
            let high = select(sums.s2, sums.s3, part == 3u);
            let sum = sum_of_lanes(lane, select(low, high, part >= 2u));
            if (digit == 0u && part == 0u && !search.by_count) {
                need = search.need * sum.x;
            }
            for (var i = 0u; i < 4u; i++) {
                chosen = select(chosen, part * 4u + i, sum[i] >= need);
            }
        }
        threshold += chosen << shift;
    }
    return threshold;
}

fn multiply_high(a: u32, b: u32) -> u32 {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let middle = a1 * b0 + ((a0 * b0) >> 16u);
    let other = a0 * b1 + (middle & 0xffffu);
    return a1 * b1 + (middle >> 16u) + (other >> 16u);
}

// Philox4x32-10, as philox4x32 of base/random.h.
fn philox(counter: vec4<u32>, seed: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var key = seed;
    for (var round = 0u; round < 10u; round++) {
        let high0 = multiply_high(0xd2511f53u, c.x);
        let high1 = multiply_high(0xcd9e8d57u, c.z);
        c = vec4<u32>(high1 ^ c.y ^ key.x, 0xcd9e8d57u * c.z,
                      high0 ^ c.w ^ key.y, 0xd2511f53u * c.x);
        key += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

// -log(-log(1 - v)) for v = (bits + 1/2) / 2^32. Where v is small 1 - v would lose it: a series in
// v instead; where it is near 1, 1 - v comes exactly from the inverted bits.
fn gumbel(bits: u32) -> f32 {
    let v = (f32(bits) + 0.5) * 2.3283064e-10;
    let rest = (f32(~bits) + 0.5) * 2.3283064e-10;
    let tail = fma(v, fma(v, fma(v, 0.16666667, 0.2), 0.25), 0.33333334);
    let series = v * fma(v, fma(v, tail, 0.5), 1.0);
    return -log(select(-log(rest), series, bits < 0x10000000u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let row = group.y * groups.x + group.x;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.vocab;
    let filters = choices[2u * (params.first + row)];
    let draw = choices[2u * (params.first + row) + 1u];
    let temperature = bitcast<f32>(filters.x);
    let top_k = filters.y;
    let top_p = bitcast<f32>(filters.z);
    let min_p = bitcast<f32>(filters.w);

    var best = vec2<u32>(0u, NO_TOKEN);
    for (var i = lane; i < params.vocab; i += LANES) {
        let key = key_of(logits[start + i]);
        best = select(best, vec2<u32>(key, i), key > best.x);
    }
    best = best_of_lanes(lane, best.x, best.y);
    if (lane == 0u) {
        best_key = best.x;
    }
    let top = workgroupUniformLoad(&best_key);
    if (top >= KEY_PLUS_INFINITY || top == KEY_MINUS_INFINITY || temperature <= COLD) {
        if (lane == 0u) {
            let none = top >= KEY_PLUS_INFINITY || top == KEY_MINUS_INFINITY;
            ids[params.first + row] = select(best.y, NO_TOKEN, none);
        }
        return;
    }

    let highest = value_of(top);
    var threshold = 0u;
    // Stage 0 is top-k, stage 1 top-p; one that keeps everything is passed over.
    let first_stage = select(1u, 0u, top_k > 0u && top_k < params.vocab);
    let stage_end = select(1u, 2u, top_p < 1.0);
    for (var stage = first_stage; stage < stage_end; stage++) {
        let by_count = stage == 0u;
        let need = select(top_p, f32(top_k), by_count);
        // With top_p 0 every threshold is high enough: the best token stays.
        let search = Search(start, threshold, highest, by_count, need);
        threshold = max(threshold, min(top, find_threshold(lane, search)));
    }

    best = vec2<u32>(0u, NO_TOKEN);
    for (var quad = lane; quad * 4u < params.vocab; quad += LANES) {
        let count = min(4u, params.vocab - quad * 4u);
        var kept: array<bool, 4>;
        var any_kept = false;
        for (var i = 0u; i < count; i++) {
            let value = logits[start + quad * 4u + i];
            kept[i] = key_of(value) >= threshold && exp(value - highest) >= min_p;
            any_kept = any_kept || kept[i];
        }
        if (any_kept) {
            let noise = philox(vec4<u32>(quad, draw.z, 0u, 0u), draw.xy);
            for (var i = 0u; i < count; i++) {
                let value = logits[start + quad * 4u + i];
                let key = key_of((value - highest) / temperature + gumbel(noise[i]));
                let better = kept[i] && key > best.x;
                best = select(best, vec2<u32>(key, quad * 4u + i), better);
            }
        }
    }
    best = best_of_lanes(lane, best.x, best.y);
    if (lane == 0u) {
        ids[params.first + row] = best.y;
    }
}
