// The GGUF files of tests/golden/arch in llama.cpp: does it split the prompts and continue them as
// the answers say?
//
//     npm install node-llama-cpp@3.21.1
//     node agree_llama_cpp.mjs tests/golden/arch [NAME ...]
//
// A line a prompt: its tokens, whether the text gives them, and a mark for each greedy token, "="
// or the gap where another came (after it the comparison goes on with the expected tokens). The cache
// is f32, the device the CPU, so that F32 files are computed in float32 throughout.

import fs from "node:fs";
import path from "node:path";
import { getLlama } from "node-llama-cpp";

const [folder, ...names] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });

async function agree(name) {
    const answers = JSON.parse(fs.readFileSync(path.join(folder, `${name}.json`), "utf8"));
    if (!answers.model?.gguf) return;
    const modelPath = path.join(folder, answers.model.gguf);
    const model = await llama.loadModel({ modelPath });
    const context = await model.createContext({
        contextSize: 512, threads: 2, flashAttention: false,
        experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32",
    });
    const sequence = context.getSequence();
    for (const { text, ids, greedy } of answers.prompts) {
        const bos = model.tokens.shouldPrependBosToken ? [model.tokens.bos] : [];
        const split = [...bos, ...model.tokenize(text, true)];
        await sequence.clearHistory();
        const next = { generateNext: { token: true, options: { temperature: 0 } } };
        const fed = [...ids, ...greedy.ids.slice(0, -1)];
        const input = fed.map((id, i) => (i >= ids.length - 1 ? [id, next] : id));
        const out = (await sequence.controlledEvaluate(input)).slice(ids.length - 1);
        const mark = (token, i) => token === greedy.ids[i] ? "="
            : `(${token} for ${greedy.ids[i]}, gap ${greedy.gaps[i].toFixed(3)})`;
        const marks = out.map((step, i) => mark(step.next.token, i)).join("");
        const same = JSON.stringify(split) === JSON.stringify(ids) ? "split" : `SPLIT ${split}`;
        console.log(name.padEnd(18), String(ids.length).padStart(3), same, marks);
    }
    await context.dispose();
    await model.dispose();
}

const files = fs.readdirSync(folder).filter((file) => file.endsWith(".json"));
const all = files.map((file) => file.slice(0, -5));
for (const name of names.length ? names : all)
    if (name !== "gguf") await agree(name);
process.exit(0);
