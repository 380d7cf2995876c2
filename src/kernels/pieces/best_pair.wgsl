// The largest of pairs (key, id), the lowest id among equal keys: what each lane of a workgroup of
// LANES, a power of two, has found becomes what all of them have.
//
// Afterwards it stands in keys[0] and ids[0]; they may be written again after a barrier.
var<workgroup> keys: array<u32, LANES>;
var<workgroup> ids: array<u32, LANES>;

fn find_best_pair(lane: u32, key: u32, id: u32) {
    keys[lane] = key;
    ids[lane] = id;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if (lane < half) {
            let k = keys[lane + half];
            let i = ids[lane + half];
            if (k > keys[lane] || (k == keys[lane] && i < ids[lane])) {
                keys[lane] = k;
                ids[lane] = i;
            }
        }
        workgroupBarrier();
    }
}
