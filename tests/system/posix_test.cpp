// Signals, pipes and links, which only POSIX systems have.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "system/files.h"
#include "system/process.h"
#include "system/terminal.h"
#include "testing.h"

namespace doppler::system {
namespace {

using testing::TempDir;
using testing::write_file;

std::atomic<int> g_calls{0};

class Signals : public ::testing::TestWithParam<int> {};

TEST_P(Signals, TheFirstIsHandledTheSecondEndsTheProgram) {
  g_calls = 0;
  std::signal(GetParam(), SIG_DFL);  // a background job of a script starts with some of them ignored
  {
    const EndingHandler handler([] { ++g_calls; });
    std::raise(GetParam());
    EXPECT_EQ(g_calls, 1);
    EXPECT_EXIT(std::raise(GetParam()), ::testing::KilledBySignal(GetParam()), "");
  }
  EXPECT_EXIT(std::raise(GetParam()), ::testing::KilledBySignal(GetParam()), "");
}

TEST_P(Signals, WhatIsSwitchedOffStaysOff) {
  g_calls = 0;
  std::signal(GetParam(), SIG_IGN);
  {
    const EndingHandler handler([] { ++g_calls; });
    std::raise(GetParam());
  }
  std::raise(GetParam());
  EXPECT_EQ(g_calls, 0);
  std::signal(GetParam(), SIG_DFL);
}

INSTANTIATE_TEST_SUITE_P(Ending, Signals, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(Streams, AClosedPipeIsAnErrorNotAnEnd) {
  prepare_streams();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  ::close(ends[1]);
}

TEST(Streams, AFileIsNoTerminal) {
  const int kept = ::dup(STDOUT_FILENO), null = ::open("/dev/null", O_WRONLY);
  ::dup2(null, STDOUT_FILENO);
  const bool terminal = is_terminal(Stream::kOutput);
  const auto columns = terminal_columns(Stream::kOutput);
  ::dup2(kept, STDOUT_FILENO);
  ::close(kept), ::close(null);
  EXPECT_FALSE(terminal);
  EXPECT_EQ(columns, std::nullopt);
}

TEST(Files, PipesAndDevicesAreNoRegularFiles) {
  TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(kind_of(dir / "pipe"), PathKind::kOther);
  const auto pipe = InputFile::open(dir / "pipe");  // does not wait for a writer
  ASSERT_TRUE(pipe);
  EXPECT_EQ(pipe->regular_size().value(), std::nullopt);
}

TEST(Files, LinksAreFollowed) {
  TempDir dir;
  write_file(dir / "target", "");
  std::filesystem::create_symlink("target", dir / "link");
  std::filesystem::create_symlink("nothing", dir / "dangling");
  std::filesystem::create_symlink("loop", dir / "loop");
  const Path folder = without_links(dir.path());
  EXPECT_EQ(link_target(dir / "link"), folder / "target");
  EXPECT_EQ(link_target(dir / "target"), dir / "target");
  EXPECT_EQ(link_target(dir / "dangling"), folder / "dangling");
  EXPECT_FALSE(link_target(dir / "loop"));
  EXPECT_FALSE(kind_of(dir / "loop"));
  EXPECT_FALSE(system::exists(dir / "loop"));
}

TEST(Folders, FollowTheEnvironment) {
  const auto home = environment_variable("HOME"), cache = environment_variable("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/somebody", 1);
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(home_folder(), "/home/somebody");
  EXPECT_EQ(cache_folder(), "/home/somebody/.cache");
  ::setenv("XDG_CACHE_HOME", "/elsewhere", 1);
  EXPECT_EQ(cache_folder(), "/elsewhere");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(cache_folder(), "/home/somebody/.cache");
  ::unsetenv("HOME");
  EXPECT_EQ(home_folder(), "");
  EXPECT_EQ(cache_folder(), "");
  home ? ::setenv("HOME", home->c_str(), 1) : ::unsetenv("HOME");
  cache ? ::setenv("XDG_CACHE_HOME", cache->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
}

TEST(Folders, WhatIsRememberedHasAPlaceOfItsOwn) {
  const auto home = environment_variable("HOME"), state = environment_variable("XDG_STATE_HOME");
  ::setenv("HOME", "/home/somebody", 1);
  ::unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(state_folder(), "/home/somebody/.local/state");
  ::setenv("XDG_STATE_HOME", "/elsewhere", 1);
  EXPECT_EQ(state_folder(), "/elsewhere");
  home ? ::setenv("HOME", home->c_str(), 1) : ::unsetenv("HOME");
  state ? ::setenv("XDG_STATE_HOME", state->c_str(), 1) : ::unsetenv("XDG_STATE_HOME");
}

TEST(Files, PrivateOnesAreReadByNobodyElse) {
  TempDir dir;
  write_file(dir / "file", "one ");
  ::chmod((dir / "file").c_str(), 0644);
  for (const bool append : {true, false}) {
    const auto file = open_private_output(dir / "file", append);
    ASSERT_TRUE(file);
    std::fputs("two", *file);
    std::fclose(*file);
    EXPECT_EQ(testing::read_file(dir / "file"), append ? "one two" : "two");
    struct stat info{};
    ASSERT_EQ(::stat((dir / "file").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777u, 0600u);
  }
  EXPECT_FALSE(open_private_output(dir / "no" / "file", true));
}

TEST(Process, AnEditorChangesAFileWhateverItsName) {
  TempDir dir;
  const auto path = dir / "it's a \"$HOME\" file";
  EXPECT_TRUE(edit_file("printf changed >", path));
  EXPECT_EQ(testing::read_file(path), "changed");
  EXPECT_FALSE(edit_file("exit 3; true", path));
}

}  // namespace
}  // namespace doppler::system
