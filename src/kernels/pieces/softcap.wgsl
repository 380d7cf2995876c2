// softcap * tanh(score / softcap), or the score itself where params.softcap is 0.

fn capped(score: f32) -> f32 {
    if (params.softcap == 0.0) {
        return score;
    }
    let e = exp(-2.0 * abs(score) / params.softcap);
    return sign(score) * params.softcap * (1.0 - e) / (1.0 + e);
}

fn capped4(score: vec4<f32>) -> vec4<f32> {
    if (params.softcap == 0.0) {
        return score;
    }
    let e = exp(-2.0 * abs(score) / params.softcap);
    return sign(score) * params.softcap * (1.0 - e) / (1.0 + e);
}
