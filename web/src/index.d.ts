// Doppler in a page or in node. Options have the names that `doppler run` and docs/config.md give them.

export type ErrorCode = "usage" | "not_found" | "corrupt" | "unsupported" | "mismatch" | "limit" | "io" | "internal" | "lost";

/** What every call rejects with. An aborted call rejects with the signal's reason instead. */
export declare class DopplerError extends Error {
  /** "lost": the engine has stopped or was closed; load the model again. The others are those of C++. */
  readonly code: ErrorCode;
}

export type Content = Blob | ArrayBuffer | ArrayBufferView;

/**
 * Where a model comes from: the address of a .gguf file or of a folder with a config.json; a .gguf file itself; the Files of
 * a folder that was chosen or dropped; or contents by path.
 */
export type Source = string | URL | Content | Iterable<File> | Map<string, Content> | Record<string, Content>;

export interface LoadOptions {
  /** The path of the model among several files of the source; else the first .gguf file, or the folder of the highest config.json. */
  model?: string;
  /** Whether a worker owns the engine. True wherever there are workers of the web's kind; in node false. */
  worker?: boolean;
  /** Another doppler_plain.wasm or doppler_relaxed.wasm than the one beside index.js that suits this browser. */
  module?: string | URL;
  onProgress?: (share: number, what: string) => void;
  signal?: AbortSignal;
  /** Longest sequence in tokens; 0: the model's own, at most 4096. */
  context?: number;
  cut_tokens?: number;
  family?: string;
  kv_type?: "f32" | "f16" | "q8_0";
  exact?: boolean;
  backend?: "cpu" | "reference";
  /** "WASM" or "PORTABLE", to compare kernels. */
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
  /** Ends the generation between two tokens; a prompt that is being computed is finished first. */
  signal?: AbortSignal;
}

export interface TokenLogprobs {
  id: number;
  logprob: number;
  top: { id: number; logprob: number }[];
}

export interface Piece {
  text: string;
  ids: number[];
  logprobs: TokenLogprobs[];
}

export interface Timings {
  prompt_ms: number;
  decode_ms: number;
  prompt_tokens: number;
  /** Of the prompt, those that the cache already held. */
  cached_tokens: number;
  generated_tokens: number;
  prompt_tokens_per_second: number;
  decode_tokens_per_second: number;
}

export interface Result {
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
  backend: string;
  has_tokenizer: boolean;
  has_chat_template: boolean;
  default_options: Required<Omit<GenerateOptions, "signal">>;
  /** Why the engine is slower than it could be, a sentence each. */
  notes: string[];
  /** Every value of the model's description, with its source. */
  facts: { name: string; value: string; because: string }[];
  types: { type: string; tensors: number; bytes: number }[];
  memory: { context: number; weights: number; cache: number; activations: number; kv_type: string };
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
  /** Frees everything. Calls that wait reject with the code "lost". */
  close(): void;
}

export declare const Doppler: {
  load(source: Source, options?: LoadOptions): Promise<Engine>;
};
