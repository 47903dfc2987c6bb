// Threads need a page that is cross-origin isolated, which these headers make it; without them the engine has one thread.
const headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

export default {
  server: { headers },
  preview: { headers },
  worker: { format: "es" }, // the engine's workers are modules
  optimizeDeps: { exclude: ["doppler-web"] }, // its files find each other by their addresses
  build: { target: "esnext" },
};
