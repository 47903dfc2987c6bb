// The worker that keeps models in the origin's private file system: only workers may write there as they go.
import { describeSource } from "./hub.js";
import { serve } from "./rpc.js";
import { findModel, keepModel, listModels, removeModel } from "./storage.js";

// What is here under that name needs no server, so that it can be had offline.
async function describe({ source, hub }, { signal }) {
  const asked = typeof source === "string" ? source : undefined;
  const kept = asked && (await listModels()).find((entry) => entry.complete && entry.asked === asked);
  return kept ?? { ...await describeSource(source, { hub, signal }), asked };
}

const CALLS = {
  describe,
  find: ({ key }) => findModel(key),
  keep: ({ model, options }, { progress, signal }) => keepModel(model, { ...options, progress, signal }),
  list: () => listModels(),
  remove: ({ key }) => removeModel(key),
};

serve((call, request, context) => CALLS[call](request, context));
