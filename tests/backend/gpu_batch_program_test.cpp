// The batch program's bookkeeping: what a step needs is made once, whatever parts it is recorded in.
#include "backend/gpu/batch_program.h"

#include "gpu_harness.h"
#include "harness.h"
#include "plan/fuse.h"
#include "plan/plan.h"

namespace doppler::gpu {
namespace {

using namespace doppler::testing;
using namespace testing;

// Steps are recorded op by op. If each op looked for what all behind it lack, a prompt would take as long as
// the square of its ops: half a second on Gemma 3 1B, for its first token in a process.
TEST(BatchProgram, MakesAllOpsOfAStepAtOnce) {
  DOPPLER_NEEDS_ADAPTER();
  for (const char* const name : {"models/llama", "models/gemma3", "models/gpt_oss"}) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const Model model, load_model(data_path(name)));
    BackendOptions options{.threads = 2, .context = 64, .max_step_tokens = 32};
    ASSERT_OK_AND_ASSIGN(Plan plan, build_plan(model.spec, model.weights, options.context));
    ASSERT_OK(fuse_plan(plan, model.weights, kGpuPasses, {}));
    options.kv_type = choose_kv_type(options, plan, model.weights);
    options.gpu_setup.self_check = false;
    Context context(device(), std::move(plan), model.weights, options);
    ASSERT_OK(context.allocate());
    ASSERT_OK_AND_ASSIGN(BatchProgram program, BatchProgram::create(context, 4));
    const std::size_t end = context.plan.ops.size();
    for (const StepShape& shape :
         {StepShape{.tokens = 20, .runs = true}, StepShape{.tokens = 3, .wanted = 3}}) {
      ASSERT_OK_AND_ASSIGN(const auto before, program.missing(context, 0, end, shape, nullptr));
      EXPECT_FALSE(before.empty());
      Recorder recorder(*context.device);
      std::size_t left = before.size();
      for (std::size_t op = 0; op < end && left > 0; ++op) {
        ASSERT_OK(program.record(context, recorder, op, op + 1, shape, nullptr, end));
        ASSERT_OK_AND_ASSIGN(const auto after, program.missing(context, 0, end, shape, nullptr));
        EXPECT_TRUE(after.empty() || after.size() == left) << after.size() << " of " << left;
        left = after.size();
      }
      EXPECT_EQ(left, 0u);
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
