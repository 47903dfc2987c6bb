// Doppler in a page or in node. Options have the names that `doppler run` and docs/config.md give them.

export type ErrorCode = "usage" | "not_found" | "corrupt" | "unsupported" | "mismatch" | "limit" | "io" | "internal" | "lost";

/** What every call rejects with. An aborted call rejects with the signal's reason instead. */
export declare class DopplerError extends Error {
  /**
   * "lost": the engine has stopped, by a trap, with its GPU or its worker, or was closed. Unless it was closed, its next call loads
   * the model again. The others are those of C++.
   */
  readonly code: ErrorCode;
}

/** Whatever can be read without waiting, such as a file in node. A worker cannot be sent one. */
export interface Reader {
  readonly size: number;
  /** Fills `into`, which may lie in memory that threads share, from `offset` on, and returns how many bytes there were: fewer only at the end. */
  read(offset: number, into: Uint8Array): number;
}
export type Content = Blob | ArrayBuffer | ArrayBufferView | Reader;

/**
 * The address of a .gguf file (of a divided one: any part), of a folder with a config.json, or of an RDRR package; or a model of
 * the Hugging Face Hub: its address there, of its page or of a file, or "hf:org/name", "hf:org/name:Q4_0", "hf:org/name@revision:file".
 */
export type Address = string | URL;
/** Where a model comes from: an address; a .gguf file; the Files of a folder that was chosen or dropped; or contents by path. */
export type Source = Address | Content | Iterable<File> | Map<string, Content> | Record<string, Content>;

/** What is told while a model runs, as `doppler run --probe` and `--trace` tell it. */
export interface Watch {
  /** Values, as --probe takes them: "stage=q_rope,layers=0:5,tokens=-1,dims=0:7". They come with the pieces of a generation. */
  probes?: string[];
  /** Categories of trace lines, "all" or "-name" as --trace takes them; of these layers, and of so many decode steps (0: all). */
  trace?: string[];
  trace_layers?: number[];
  trace_steps?: number;
}
/** What was seen since the piece before: lines as the program prints them, and the probes' values. */
export interface Seen {
  said?: string[];
  probes?: { id: string; stage: string; layer: number | null; token: number; step: number; head?: number; values: Record<string, number | string> }[];
}

export interface LoadOptions {
  /** The path of the model among several files of the source; else the first .gguf file, or the folder of the highest config.json. */
  model?: string;
  /** Whether a worker owns the engine. True wherever there are workers of the web's kind; in node false. */
  worker?: boolean;
  /**
   * Threads to compute with at most; 0, the default: as many as the device has processors. More than one need a page that is
   * cross-origin isolated, or node; else there is one, and `notes` say why. A GPU is driven by one.
   */
  threads?: number;
  /** Another doppler_*.wasm than the one beside index.js that suits this browser and its threads. */
  module?: string | URL;
  /**
   * Whether what an address names is downloaded into the Store and read from there. True wherever that can be; else it is fetched
   * for this engine alone.
   */
  keep?: boolean;
  /** The store to download into, for its options. */
  store?: Store;
  /** `told`: while the store downloads. */
  onProgress?: (share: number, what: string, told?: DownloadProgress) => void;
  signal?: AbortSignal;
  /** Trace lines of loading are in `info.said`. */
  watch?: Watch;
  /** Longest sequence in tokens; 0: the model's own, at most 4096. */
  context?: number;
  cut_tokens?: number;
  family?: string;
  kv_type?: "f32" | "f16" | "q8_0";
  exact?: boolean;
  /**
   * Where it computes. "cpu" unless something else is asked for. "gpu": through WebGPU, or an error says why not. "auto": on a GPU that
   * is no software and computes this model, else on the cpu; `notes` then say why. `Info.backend` says which it is.
   */
  backend?: "cpu" | "gpu" | "auto" | "reference";
  /** The instruction set of the kernels; a module has one, "WASM". */
  cpu_target?: string;
}

export interface GenerateOptions {
  max_tokens?: number;
  /** 0: always the likeliest token. Left out, this and the filters are what the model recommends. */
  temperature?: number;
  top_k?: number;
  top_p?: number;
  min_p?: number;
  repeat_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  penalty_window?: number;
  logit_bias?: Record<number, number>;
  seed?: number;
  stop?: string[];
  ignore_eos?: boolean;
  /** So many likeliest tokens beside each generated one; -1: none. */
  logprobs?: number;
  /** Tokens guessed ahead where text repeats, 1 to 16; 0: none; -1 (unless given): as many as pay. */
  speculate?: number;
  /** Ends the generation between two tokens; a prompt that is being computed is finished first. */
  signal?: AbortSignal;
  watch?: Watch;
  /** Values inside of all tokens that are computed, which come with the pieces: `Piece.stages`. */
  look?: LookRequest;
}

/** Which values to look at. Left out, a list means all, except `stages`, which needs at least one name. */
export interface LookRequest {
  /** "q_rope", "logits", … (`Info.stages`); ["all"]: every stage but attn_scores. */
  stages: string[];
  /** Of stages inside layers. */
  layers?: number[];
  /** Positions in the sequence; negative: from the prompt's end. */
  tokens?: number[];
  /** Columns of a row; attn_scores, whose rows grow with the sequence, are always whole. */
  dims?: number[];
  /** False: only statistics. */
  values?: boolean;
  statistics?: boolean;
  /** A look that would keep more (1 GiB) is refused with the code "limit", before anything is computed. */
  most_bytes?: number;
}

/** One stage of one layer, as the engine computed it. */
export interface StageValues {
  stage: string;
  /** null: outside the layers. */
  layer: number | null;
  /** Positions in the sequence, one for each row. */
  tokens: number[];
  /** [tokens, columns], or [tokens, heads, columns of a head]; attn_scores: [tokens, heads, positions], -Infinity where masked. */
  shape: number[];
  dims?: number[];
  values: Float32Array;
  /** NaN and infinite values are counted, and left out of the others. */
  statistics?: { count: number; min: number; max: number; mean: number; rms: number; max_abs: number; nan: number; inf: number; zeros: number };
}

/** Begins when its first stage is asked for; takes turns with generations, whose cache it replaces. */
export declare class Look implements AsyncIterable<StageValues> {
  /** In the order in which a step computes them. Each leaves the module's memory when it is asked for. */
  [Symbol.asyncIterator](): AsyncIterator<StageValues>;
  /** The prompt's tokens, and the stages that nobody has taken yet. */
  result(): Promise<{ ids: number[]; stages: StageValues[] }>;
}

export interface TokenLogprobs {
  id: number;
  logprob: number;
  top: { id: number; logprob: number }[];
}

export interface Piece extends Seen {
  text: string;
  ids: number[];
  logprobs: TokenLogprobs[];
  /** Where `look` asks for them: of the tokens that were computed since the piece before, prompt included. */
  stages?: StageValues[];
}

export interface Timings {
  prompt_ms: number;
  decode_ms: number;
  prompt_tokens: number;
  /** Of the prompt, those that the cache already held. */
  cached_tokens: number;
  generated_tokens: number;
  /** Tokens that were guessed ahead, and those of them that came. */
  guessed_tokens: number;
  guessed_right: number;
  prompt_tokens_per_second: number;
  decode_tokens_per_second: number;
}

export interface Result extends Seen {
  text: string;
  ids: number[];
  prompt_ids: number[];
  logprobs: TokenLogprobs[];
  stop_reason: "eos" | "stop_string" | "max_tokens" | "context_end" | "cancelled";
  timings: Timings;
}

/** A generation begins when its first piece is asked for; an engine's generations go one after another. */
export declare class Generation implements AsyncIterable<Piece> {
  [Symbol.asyncIterator](): AsyncIterator<Piece>;
  /** The whole, after the pieces that nobody has taken yet. */
  result(): Promise<Result>;
}

export interface Info {
  family: string;
  layers: number;
  hidden: number;
  vocab_size: number;
  context_length: number;
  context: number;
  /** "cpu", "gpu" or "reference". */
  backend: string;
  /** The GPU's name, as far as the browser tells it. */
  device?: string;
  has_tokenizer: boolean;
  has_chat_template: boolean;
  default_options: Required<Omit<GenerateOptions, "signal" | "look" | "watch">>;
  /** Why the engine is slower than it could be, and that it was loaded again after it had stopped, a sentence each. */
  notes: string[];
  /** Every value of the model's description, with its source. */
  facts: { name: string; value: string; because: string }[];
  types: { type: string; tensors: number; bytes: number }[];
  /** In bytes. `module`: all that the module has taken so far, which it never gives back. */
  memory: { context: number; weights: number; cache: number; activations: number; kv_type: string; module: number };
  /** What can be looked at. `width`: of a row; 0 of attn_scores, which have a score for each position. `layers`: that have it. */
  stages: { name: string; meaning: string; width: number; heads: number; layers: number[] }[];
  /** Trace lines of loading, where `watch` has asked for some. */
  said?: string[];
}

export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: string | { type: "text"; text: string }[];
  [key: string]: unknown;
}
/** Messages alone, or with tools and further variables of the model's chat template. */
export type Conversation = Message[] | { messages: Message[]; tools?: object[]; [variable: string]: unknown };
/** A text, token ids, or a conversation that the model's chat template renders. */
export type Prompt = string | number[] | Conversation;

/** OpenAI's chat completions. What a request says that has no meaning here is an error, but for model, user, metadata and store. */
export interface CompletionRequest {
  messages: Message[];
  tools?: object[];
  stream?: boolean;
  stream_options?: { include_usage?: boolean };
  max_tokens?: number;
  max_completion_tokens?: number;
  temperature?: number;
  top_p?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  logit_bias?: Record<number, number>;
  seed?: number;
  stop?: string | string[];
  logprobs?: boolean;
  top_logprobs?: number;
  /** Further variables of the chat template. */
  chat_template_kwargs?: Record<string, unknown>;
  model?: string;
  user?: string;
}
export interface Logprob {
  token: string;
  logprob: number;
  bytes: number[];
}
export interface Logprobs {
  content: (Logprob & { top_logprobs: Logprob[] })[];
}
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: { cached_tokens: number };
}
export type FinishReason = "stop" | "length";
export interface Completion {
  id: string;
  object: "chat.completion";
  created: number;
  model: string;
  choices: { index: number; message: { role: "assistant"; content: string }; logprobs: Logprobs | null; finish_reason: FinishReason }[];
  usage: Usage;
}
export interface CompletionChunk {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  choices: { index: number; delta: { role?: "assistant"; content?: string }; logprobs: Logprobs | null; finish_reason: FinishReason | null }[];
  usage?: Usage;
}
export declare class Completions {
  create(request: CompletionRequest & { stream: true }, options?: { signal?: AbortSignal }): Promise<AsyncIterable<CompletionChunk>>;
  create(request: CompletionRequest & { stream?: false }, options?: { signal?: AbortSignal }): Promise<Completion>;
}

/** A recording by transformers or `doppler record`, as safetensors. */
export type Recording = Address | Content;

/** Those of the program's flags. */
export interface CompareOptions {
  /** Values only, without running each op again on plain loops. */
  quick?: boolean;
  /** Greedy steps after the prompt, beside another backend (10). */
  steps?: number;
  tolerance?: number;
  piece?: number;
  companion?: boolean;
  onProgress?: (share: number, what: string) => void;
  signal?: AbortSignal;
}

export interface OpError {
  error: number | null;
  allowed: number | null;
  /** The error over what rounding explains: above 1 the op is wrong. */
  excess: number | null;
  token: number;
  index: number;
  first_bad_token: number | null;
  agrees: boolean;
  token_errors: (number | null)[];
  worst: { token: number; index: number; expected: number | null; found: number | null }[];
}
export interface StageComparison {
  key: string;
  stage: string;
  layer: number | null;
  phase: "prefill" | "decode";
  computed: boolean;
  /** Shares of the largest value; null: without bound. */
  error: number | null;
  tolerance: number;
  largest: number;
  agrees: boolean;
  why: "none" | "not_computed" | "execution" | "description" | "total";
  tokens: number;
  worst_token: number;
  near_choices: number;
  first_bad_token: number | null;
  token_errors: (number | null)[];
  worst: OpError["worst"];
  execution: OpError | null;
  description: OpError | null;
  inherited: number | null;
  untold: string;
}
export interface Comparison {
  agrees: boolean;
  backend: string;
  found: string;
  expected: string;
  not_shared: string[];
  stages_compared: number;
  first_divergence: (StageComparison & { token: number | null }) | null;
  decode: { steps: number; top1_equal: number; error?: number | null; logits?: StageComparison };
  prompt_logits: LogitsAgreement | null;
  decode_logits: LogitsAgreement | null;
  stages: StageComparison[];
  fallbacks: { what: string; why: string }[];
}
export interface LogitsAgreement {
  rows: number;
  top1_equal: number;
  mean_kl: number | null;
  largest_kl: number | null;
  largest_kl_row: number;
  smallest_margin: number | null;
  first_unsure: number | null;
}

export interface DoctorOptions {
  /** The truth: a recording of the model. */
  reference?: Recording;
  /** Only these checks. */
  check?: string[];
  /** What all checks may take together (30). */
  seconds?: number;
  hashes?: boolean;
  onProgress?: (share: number, what: string) => void;
  signal?: AbortSignal;
}
export interface Finding {
  cause: string;
  stage: string;
  layer: number | null;
  explanation: string;
  repair: string;
  /** 0 to 1. */
  confidence: number;
  [more: string]: unknown;
}
export interface Diagnosis {
  healthy: boolean;
  findings: Finding[];
  checks: { name: string; asks: string; state: "ok" | "finding" | "skipped"; text: string; seconds: number }[];
  ops: { check: string; stage: string; layer: number | null; excess: number | null }[];
  fallbacks: { what: string; why: string }[];
  [more: string]: unknown;
}

export declare class Engine {
  readonly info: Info;
  readonly chat: { readonly completions: Completions };
  generate(prompt: Prompt, options?: GenerateOptions): Generation;
  /** `special` (true): with the tokens that the tokenizer adds by itself. */
  tokenize(text: string, options?: { special?: boolean }): Promise<number[]>;
  /** Special tokens give no text. */
  detokenize(ids: Iterable<number>): Promise<string>;
  /** The conversation in the model's own format, ready for its answer. */
  renderChat(conversation: Conversation): Promise<string>;
  inspect(): Promise<Info>;
  /** The values of any stage of any layer for a prompt, which is computed anew as a whole, by the kernels that generate. */
  look(prompt: Prompt, request: LookRequest & { signal?: AbortSignal }): Look;
  /** How likely each token of a prompt was, given those before it: all but the first, with the `top` likeliest beside it. */
  score(prompt: Prompt, options?: { top?: number }): Promise<{ ids: number[]; logprobs: TokenLogprobs[] }>;
  /**
   * The model beside a recording (an address, or content), or beside another backend that runs a prompt: what `doppler compare --json`
   * prints. A second module opens the model for it, and has its weights in memory as a whole.
   */
  compare(other: Recording | { with: "reference" | "cpu" | "gpu"; prompt: string }, options?: CompareOptions): Promise<Comparison>;
  /** What is wrong with the model, and why: what `doppler doctor --json` prints. In a second module, too. */
  doctor(options?: DoctorOptions): Promise<Diagnosis>;
  /** Frees everything. Calls that wait reject with the code "lost". */
  close(): void;
}

export interface StoreOptions {
  /** Another Hub than https://huggingface.co. */
  hub?: string;
  /** Requests at once (4), and bytes of each (16 MiB). */
  connections?: number;
  pieceBytes?: number;
  /** Requests without a new byte between them, after which a download ends (5), and the pause after the first, which doubles (500). */
  tries?: number;
  firstPauseMs?: number;
  /** Without a byte for so long, a connection counts as cut (30000). */
  stallMs?: number;
}

export interface DownloadProgress {
  file: string;
  /** Of all files, with what was there before. */
  bytes: number;
  total: number;
  bytes_per_second: number;
  seconds_left?: number;
  /** Another tab downloads the model, and this one waits for it. */
  waiting?: boolean;
}

export interface StoredFile {
  path: string;
  url: string;
  size?: number;
  /** Bytes that are there. */
  have: number;
  /** Of a file that is there as a whole. */
  sha256?: string;
}

export interface StoredModel {
  key: string;
  name: string;
  /** What add() was given, in one spelling and as it was; there is no address of a dropped file. */
  source: string;
  asked?: string;
  added: string;
  files: StoredFile[];
  bytes: number;
  complete: boolean;
}

export interface Plan {
  key: string;
  name: string;
  files: { path: string; url: string; size?: number; have: number }[];
  /** Of all files, and what is still to be downloaded; too low where `sizes_known` is false. */
  bytes: number;
  missing: number;
  sizes_known: boolean;
  /** What the engine says of the model, of which it reads the description only; nothing where the server gives no ranges. */
  info?: Omit<Info, "backend" | "context" | "has_tokenizer" | "has_chat_template" | "default_options" | "notes">;
  /** An estimate of the module's memory: weights, cache and activations, and what it usually takes beside them. */
  memory: number;
  storage: { quota: number; usage: number; persisted: boolean };
  complete: boolean;
  /** Whether nothing speaks against it, and what does, a sentence each. */
  runs: boolean;
  against: string[];
}

/** Models that stay on this device, in the origin's private file system. All tabs of a site see the same. */
export declare class Store {
  /** False outside of https, and where the browser lacks what is needed. */
  static readonly available: boolean;
  constructor(options?: StoreOptions);
  /** Sizes and what speaks against it, before a byte of the weights is fetched. Options as for loading it. */
  plan(source: Address | Blob | Iterable<File>,
    options?: Pick<LoadOptions, "signal" | "module" | "context" | "cut_tokens" | "family" | "kv_type" | "exact">): Promise<Plan>;
  /** Downloads, or copies, what is missing. What was there when it failed or was aborted is there the next time. */
  add(source: Address | Blob | Iterable<File>, options?: {
    signal?: AbortSignal;
    onProgress?: (told: DownloadProgress) => void;
  }): Promise<StoredModel>;
  /** Also what is there in part. */
  list(): Promise<StoredModel[]>;
  /** Rejects with the code "io" while an engine reads it, in whichever tab. */
  remove(key: string): Promise<void>;
  /** Asks the browser not to remove anything by itself when space is short; whether it agrees. */
  persist(): Promise<boolean>;
  close(): void;
}

export declare const Doppler: {
  load(source: Source, options?: LoadOptions): Promise<Engine>;
  /** As Engine.doctor, also of a model that cannot be loaded, and then says why. */
  doctor(source: Source, options?: LoadOptions & DoctorOptions): Promise<Diagnosis>;
};
