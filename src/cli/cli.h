// The command line program.
#pragma once

namespace doppler::cli {

// Returns the exit status: 0 done (or "healthy"), 1 the command's answer is no, 2 wrong usage, 3 the input or
// the machine does not allow it.
int main(int argc, char** argv);

}  // namespace doppler::cli
