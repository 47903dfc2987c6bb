// Whether the browser has a GPU for the module, and what it says of it.

// Why there is no WebGPU here; undefined if there is.
export function missing() {
  if (typeof WebAssembly.Suspending !== "function") return "This browser cannot let a module wait (WebAssembly.Suspending).";
  if (!globalThis.navigator?.gpu) return "This browser has no WebGPU, or not for pages without https.";
}

export async function findAdapter() {
  return missing() ? null : navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
}

export function describeAdapter({ info, features, limits }) {
  const numbers = {};
  for (const name in limits) numbers[name] = limits[name];
  const { vendor, architecture, device, description, isFallbackAdapter, subgroupMinSize, subgroupMaxSize } = info;
  // Where each kernel may get subgroups of its own size, the engine cannot count on any.
  const usable = [...features].filter((name) => name !== "subgroups" || subgroupMinSize === subgroupMaxSize);
  return JSON.stringify({ vendor, architecture, device, description, features: usable, limits: numbers,
    software: Boolean(isFallbackAdapter) || /swiftshader|llvmpipe/.test(architecture + device) });
}
