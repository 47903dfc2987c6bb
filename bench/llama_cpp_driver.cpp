// llama_cpp_driver FOLDER MODEL [--threads N] [--context N] [--swa-full] [--gpu]: llama.cpp's prebuilt
// library behind the requests of driver.h. FOLDER holds libllama and those libggml-cpu variants from which
// ggml may choose, and libggml-vulkan for --gpu: all layers and the cache on the first GPU that ggml finds.
//
// The library is loaded at run time, and the few functions and structures that are used are declared here.
// Their layout is that of release v0.5.0; the program checks it by the defaults that the library fills in,
// and refuses to run if they differ.
//
// Settings are the library's defaults except: threads, context, batches of 512, and the windowed KV cache
// (swa_full off), which llama.cpp's own programs choose, too, and which is the faster one.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "driver.h"

namespace {

struct ModelParams {
  void* devices;
  const void* tensor_buft_overrides;
  std::int32_t n_gpu_layers, split_mode, load_mode;
  std::int32_t unused[2];
  const float* tensor_split;
  void* progress_callback;
  void* progress_callback_user_data;
  const void* kv_overrides;
  bool vocab_only, check_tensors, use_extra_bufts, no_host, no_alloc, load_mtp;
};
static_assert(sizeof(ModelParams) == 0x50 && offsetof(ModelParams, vocab_only) == 0x48);

struct ContextParams {
  std::uint32_t n_ctx, n_batch, n_ubatch, n_seq_max, n_rs_seq, n_outputs_max, n_outputs_max_per_seq;
  std::int32_t n_threads, n_threads_batch;
  std::int32_t context_type, rope_scaling_type, pooling_type, attention_type, flash_attn_type;
  float rope_freq_base, rope_freq_scale, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
  std::uint32_t yarn_orig_ctx;
  float defrag_thold;
  void* cb_eval;
  void* cb_eval_user_data;
  std::int32_t type_k, type_v;
  void* abort_callback;
  void* abort_callback_data;
  bool embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified;
  void* samplers;
  std::size_t n_samplers;
  void* other_context;
};
static_assert(sizeof(ContextParams) == 0xa0 && offsetof(ContextParams, cb_eval) == 0x58 &&
              offsetof(ContextParams, embeddings) == 0x80);

struct Batch {
  std::int32_t n_tokens;
  std::int32_t* token;
  float* embd;
  std::int32_t* pos;
  std::int32_t* n_seq_id;
  std::int32_t** seq_id;
  std::int8_t* logits;
};
static_assert(sizeof(Batch) == 56);

struct PoolParams {
  bool cpumask[512];
  std::int32_t n_threads, prio;
  std::uint32_t poll;
  bool strict_cpu, paused;
};
static_assert(sizeof(PoolParams) == 528);

constexpr std::int32_t kTypeF16 = 1;  // ggml's number of the type

struct Library {
  void (*backend_init)();
  void (*load_backends)(const char* folder);
  void (*llama_log)(void (*callback)(int level, const char* text, void* data), void* data);
  void (*ggml_log)(void (*callback)(int level, const char* text, void* data), void* data);
  ModelParams (*model_defaults)();
  ContextParams (*context_defaults)();
  void* (*load_model)(const char* path, ModelParams params);
  void* (*make_context)(void* model, ContextParams params);
  const void* (*vocabulary)(const void* model);
  std::int32_t (*vocabulary_size)(const void* vocab);
  Batch (*batch)(std::int32_t* tokens, std::int32_t count);
  std::int32_t (*decode)(void* context, Batch batch);
  float* (*logits)(void* context, std::int32_t index);
  void* (*memory)(const void* context);
  void (*clear)(void* memory, bool data);
  PoolParams (*pool_defaults)(int threads);
  void* (*device_of_type)(int type);
  const char* (*device_description)(void* device);
  void* (*registry_of_device)(void* device);
  void* (*function_of_registry)(void* registry, const char* name);
  void (*attach_pool)(void* context, void* decode_pool, void* batch_pool);
};

[[noreturn]] void die(const std::string& sentence) {
  std::fprintf(stderr, "llama_cpp_driver: %s\n", sentence.c_str());
  std::exit(3);
}

template <typename Function>
void find(void* handle, const char* name, Function& function) {
  void* symbol = dlsym(handle, name);
  if (symbol == nullptr) die(std::string("The library has no function ") + name + ".");
  std::memcpy(&function, &symbol, sizeof(symbol));
}

Library load_library(const std::string& folder, bool gpu) {
  // The package with the Vulkan backend computes on the CPU as well, and may be the only one at hand.
  const std::string plain = folder + "/libllama.v0.5.0.so", vulkan = folder + "/libllama.vulkan.v0.5.0.so";
  const std::string& path = gpu || !std::filesystem::exists(plain) ? vulkan : plain;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) die(std::string("The library cannot be loaded: ") + dlerror() + ".");
  Library lib{};
  find(handle, "llama_backend_init", lib.backend_init);
  find(handle, "ggml_backend_load_all_from_path", lib.load_backends);
  find(handle, "llama_log_set", lib.llama_log);
  find(handle, "ggml_log_set", lib.ggml_log);
  find(handle, "llama_model_default_params", lib.model_defaults);
  find(handle, "llama_context_default_params", lib.context_defaults);
  find(handle, "llama_model_load_from_file", lib.load_model);
  find(handle, "llama_init_from_model", lib.make_context);
  find(handle, "llama_model_get_vocab", lib.vocabulary);
  find(handle, "llama_vocab_n_tokens", lib.vocabulary_size);
  find(handle, "llama_batch_get_one", lib.batch);
  find(handle, "llama_decode", lib.decode);
  find(handle, "llama_get_logits_ith", lib.logits);
  find(handle, "llama_get_memory", lib.memory);
  find(handle, "llama_memory_clear", lib.clear);
  find(handle, "ggml_threadpool_params_default", lib.pool_defaults);
  find(handle, "ggml_backend_dev_by_type", lib.device_of_type);
  find(handle, "ggml_backend_dev_description", lib.device_description);
  find(handle, "ggml_backend_dev_backend_reg", lib.registry_of_device);
  find(handle, "ggml_backend_reg_get_proc_address", lib.function_of_registry);
  find(handle, "llama_attach_threadpool", lib.attach_pool);
  return lib;
}

// The defaults of v0.5.0, at the places where the structures above have them.
void check_layout(const Library& lib) {
  const ModelParams m = lib.model_defaults();
  const bool model_fits = m.n_gpu_layers == -1 && m.split_mode == 1 &&
                          (m.load_mode == -1 || m.load_mode == 1) && m.progress_callback == nullptr &&
                          m.kv_overrides == nullptr && !m.vocab_only && !m.check_tensors &&
                          m.use_extra_bufts && !m.no_host && !m.no_alloc;
  if (!model_fits) die("The layout of llama_model_params is not that of v0.5.0. Use the pinned version.");
  const ContextParams c = lib.context_defaults();
  const bool context_fits =
      c.n_ctx == 512 && c.n_batch == 2048 && c.n_ubatch == 512 && c.n_seq_max == 1 && c.n_threads > 0 &&
      c.n_threads == c.n_threads_batch && c.rope_scaling_type == -1 && c.flash_attn_type == -1 &&
      c.yarn_ext_factor == -1 && c.defrag_thold == -1 && c.cb_eval == nullptr && c.type_k == kTypeF16 &&
      c.type_v == kTypeF16 && c.abort_callback == nullptr && !c.embeddings && c.offload_kqv && c.op_offload &&
      c.samplers == nullptr && c.n_samplers == 0 && c.other_context == nullptr;
  if (!context_fits) die("The layout of llama_context_params is not that of v0.5.0. Use the pinned version.");
  const PoolParams p = lib.pool_defaults(3);
  const bool pool_fits = p.n_threads == 3 && p.prio == 0 && p.poll <= 100 && !p.strict_cpu && !p.paused;
  if (!pool_fits) die("The layout of ggml_threadpool_params is not that of v0.5.0. Use the pinned version.");
}

// ggml's numbers of its kinds of devices; an integrated GPU is of a kind of its own.
constexpr int kDeviceCpu = 0, kDeviceGpu = 1, kDeviceIntegratedGpu = 2;

// ggml's name of the GPU that it will use.
std::string gpu_name(const Library& lib) {
  for (const int type : {kDeviceGpu, kDeviceIntegratedGpu}) {
    if (void* device = lib.device_of_type(type); device != nullptr) return lib.device_description(device);
  }
  die("ggml's Vulkan backend finds no GPU; a software one is used only with GGML_VK_VISIBLE_DEVICES=0.");
}

// Threads that stay from one step to the next, as llama.cpp's own programs make them; without, the library
// starts new ones for every step. The function lives in the CPU variant, which ggml itself has loaded.
void* make_pool(const Library& lib, int threads) {
  void* device = lib.device_of_type(kDeviceCpu);
  if (device == nullptr) die("ggml has found no CPU variant in its folder that this machine can run.");
  void* symbol = lib.function_of_registry(lib.registry_of_device(device), "ggml_threadpool_new");
  if (symbol == nullptr) die("The CPU variant has no thread pool.");
  void* (*make)(PoolParams*) = nullptr;
  std::memcpy(&make, &symbol, sizeof(symbol));
  PoolParams params = lib.pool_defaults(threads);
  return make(&params);
}

struct Options {
  std::string folder, model;
  int threads = 2, context = 4096;
  bool swa_full = false, gpu = false, verbose = false;
};

// Keeps the line that names the CPU variant; shows everything only when asked, and warnings always.
struct Log {
  std::string variant = "unknown";
  bool verbose = false;
};
void on_log(int level, const char* text, void* data) {
  Log& log = *static_cast<Log*>(data);
  const std::string_view line(text);
  if (line.find("loaded CPU backend") != line.npos) {
    const std::size_t slash = line.rfind('/');
    log.variant = std::string(line.substr(slash == line.npos ? 0 : slash + 1));
    while (!log.variant.empty() && log.variant.back() == '\n') log.variant.pop_back();
  }
  constexpr int kError = 4;  // of ggml's log levels
  if (log.verbose || level == kError) std::fputs(text, stderr);
}

class LlamaRunner final : public bench::Runner {
 public:
  LlamaRunner(const Library& lib, const Options& options) : lib_(lib) {
    ModelParams model_params = lib_.model_defaults();
    if (options.gpu) model_params.n_gpu_layers = kAllLayers;
    void* model = lib_.load_model(options.model.c_str(), model_params);
    if (model == nullptr) die("llama.cpp cannot load the model " + options.model + ".");
    vocab_ = static_cast<std::uint64_t>(lib_.vocabulary_size(lib_.vocabulary(model)));
    ContextParams params = lib_.context_defaults();
    params.n_ctx = static_cast<std::uint32_t>(options.context);
    params.n_batch = kBatch;
    params.n_threads = params.n_threads_batch = options.threads;
    params.swa_full = options.swa_full;
    void* pool = make_pool(lib_, options.threads);
    for (void*& context : contexts_) {
      context = lib_.make_context(model, params);
      if (context == nullptr) die("llama.cpp cannot make a context.");
      lib_.attach_pool(context, pool, pool);
    }
  }

  std::uint64_t vocab() const override { return vocab_; }
  void clear(int sequence) override { lib_.clear(lib_.memory(contexts_[sequence]), false); }
  std::string feed(int sequence, const std::vector<std::int32_t>& tokens) override {
    std::vector<std::int32_t> copy = tokens;  // the library wants them writable
    for (std::size_t begin = 0; begin < copy.size(); begin += kBatch) {
      const std::size_t count = std::min<std::size_t>(kBatch, copy.size() - begin);
      const int status =
          lib_.decode(contexts_[sequence], lib_.batch(copy.data() + begin, static_cast<std::int32_t>(count)));
      if (status != 0) return "llama_decode returns " + std::to_string(status);
    }
    logits_ = lib_.logits(contexts_[sequence], -1);  // waits until they are there
    return logits_ == nullptr ? "llama.cpp gives no logits" : "";
  }
  const float* logits() const override { return logits_; }

 private:
  static constexpr std::uint32_t kBatch = 512;
  static constexpr std::int32_t kAllLayers = 999;  // more than any model has
  const Library& lib_;
  void* contexts_[2] = {};
  std::uint64_t vocab_ = 0;
  const float* logits_ = nullptr;
};

Options parse(int argc, char** argv) {
  Options options;
  std::vector<std::string> places;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool valued = argument == "--threads" || argument == "--context";
    if (valued && i + 1 < argc)
      (argument == "--threads" ? options.threads : options.context) = std::atoi(argv[++i]);
    else if (argument == "--swa-full")
      options.swa_full = true;
    else if (argument == "--gpu")
      options.gpu = true;
    else if (argument == "--verbose")
      options.verbose = true;
    else
      places.push_back(argument);
  }
  if (places.size() != 2)
    die("Usage: llama_cpp_driver FOLDER MODEL [--threads N] [--context N] [--swa-full] [--gpu]");
  options.folder = places[0];
  options.model = places[1];
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Library lib = load_library(options.folder, options.gpu);
  check_layout(lib);
  Log log{.verbose = options.verbose};
  lib.llama_log(on_log, &log);
  lib.ggml_log(on_log, &log);
  lib.load_backends(options.folder.c_str());
  lib.backend_init();
  const std::string used = options.gpu ? "Vulkan, " + gpu_name(lib) : log.variant;
  const auto start = bench::Clock::now();
  LlamaRunner runner(lib, options);
  return bench::Server(runner).serve(bench::seconds_since(start), "llama.cpp v0.5.0 (" + used + ")");
}
