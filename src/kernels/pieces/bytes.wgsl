// Elements of quantised weights and inputs as signed bytes for dot4I8Packed, in one order: that in
// which the bytes come out of a weight's words. Of eight elements in two words that is 0 4 1 5 and
// 2 6 3 7; for LAYOUT_Q8, whose words hold four, 0 2 1 3 and 4 6 5 7.

// The eight elements of a word of nibbles, unsigned; high as weight_high gives it.
fn nibble_bytes(word: u32, high: u32) -> vec2<u32> {
    var first = word & 0x0f0f0f0fu;
    var second = (word >> 4u) & 0x0f0f0f0fu;
    if (LAYOUT == LAYOUT_Q5) {
        first |= ((high << 4u) & 0x00100010u) | ((high << 10u) & 0x10001000u);
        second |= ((high << 3u) & 0x00100010u) | ((high << 9u) & 0x10001000u);
    } else if (LAYOUT == LAYOUT_Q6) {
        first |= ((high << 4u) & 0x00300030u) | ((high << 8u) & 0x30003000u);
        second |= ((high << 2u) & 0x00300030u) | ((high << 6u) & 0x30003000u);
    }
    return vec2<u32>(first, second);
}
