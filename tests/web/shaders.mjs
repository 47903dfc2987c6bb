// shaders.mjs FOLDER: compiles every text of the folder with Dawn, the WebGPU that Chromium has, and prints what it refuses.
// Exit status: 0 if all compile, 1 if not, 77 without the module (npm install webgpu, in .deps/dawn).
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

let dawn;
try {
  dawn = await import(new URL('../../.deps/dawn/node_modules/webgpu/index.js', import.meta.url));
} catch (error) {
  console.log('The module webgpu is not there: scripts/install_deps.sh dawn');
  process.exit(77);
}
Object.assign(globalThis, dawn.globals);
const gpu = dawn.create(['backend=null']);  // by name: what it makes does not keep it alive
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice({ requiredFeatures: ['subgroups'] });
// What Dawn does not follow from a loop's bounds, but holds: lanes of a subgroup stay together in our kernels.
const prelude = 'enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n';
let compiled = 0, refused = 0;
for (const name of readdirSync(process.argv[2]).sort()) {
  const text = readFileSync(join(process.argv[2], name), 'utf8');
  device.pushErrorScope('validation');
  const info = await device.createShaderModule({ code: prelude + text }).getCompilationInfo();
  await device.popErrorScope();
  const errors = info.messages.filter((message) => message.type === 'error');
  if (errors.length === 0) {
    ++compiled;
    continue;
  }
  // Two lines of prelude come before the text.
  if (++refused <= 20) console.log(`${name}:${errors[0].lineNum - 2}: ${errors[0].message}`);
}
console.log(`${compiled} texts compile, ${refused} are refused`);
process.exit(gpu && refused === 0 && compiled > 0 ? 0 : 1);
