"""doppler chat as a person sees it, on a pseudo-terminal.

usage: chat_terminal_test.py DOPPLER DEMO
"""

import json
import os
import pathlib
import re
import signal
import stat
import sys
import tempfile
import unittest

from terminal import Terminal

DOPPLER, DEMO = (str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:3])
READY = "\033[?2004h"  # the terminal is asked to mark pastes whenever a line is read
UP, LEFT, HOME, DELETE, BACKSPACE = "\033[A", "\033[D", "\033[H", "\033[3~", "\x7f"
CTRL_C, CTRL_D, CTRL_A, CTRL_K, ALT_ENTER = "\x03", "\x04", "\x01", "\x0b", "\033\r"
BEAR, BEAR_EATS = "What does a bear eat?", "A bear eats fish and honey."


class Chat(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.saved = 0

    def chat(self, *arguments, command="chat", backend="cpu", columns=80, **environment):
        chat = Terminal([DOPPLER, command, DEMO, "--backend", backend, "--threads", "1", *arguments], columns=columns,
                        cwd=self.folder, XDG_STATE_HOME=str(self.folder / "state"), **environment)
        chat.expect(READY)
        return chat

    def say(self, chat, line, answer=""):
        chat.type(line + "\r")
        chat.expect(answer) if answer else None
        return chat.expect(READY)

    def leave(self, chat):
        chat.type(CTRL_D)
        self.assertEqual(chat.end(), 0, chat.output)

    def messages(self, chat):
        """What the conversation holds, as /save writes it."""
        self.saved += 1
        name = f"saved{self.saved}.json"
        self.say(chat, f"/save {name}", "Saved ")
        return [m["content"] for m in json.loads((self.folder / name).read_text())["messages"]]

    def test_asks_and_answers_until_ctrl_d(self):
        chat = self.chat()
        self.say(chat, BEAR, BEAR_EATS)
        self.say(chat, "And where does it live?", "A bear lives in the forest.")
        self.leave(chat)

    def test_run_without_a_prompt_is_a_chat(self):
        chat = self.chat(command="run")
        self.say(chat, BEAR, BEAR_EATS)
        self.leave(chat)

    def test_arrows_and_keys_edit_the_line(self):
        chat = self.chat()
        self.say(chat, "hat does a bearr eat?" + LEFT * 5 + BACKSPACE + HOME + "W", BEAR_EATS)
        self.say(chat, "xx" + CTRL_A + DELETE + DELETE + BEAR, BEAR_EATS)
        self.say(chat, "wrong" + CTRL_A + CTRL_K + BEAR, BEAR_EATS)
        self.assertEqual(self.messages(chat), [BEAR, BEAR_EATS] * 3)
        self.leave(chat)

    def test_wide_characters_are_edited_as_characters(self):
        chat = self.chat("--max-tokens", "1")
        self.say(chat, "熊は魚魚を" + LEFT + BACKSPACE + "🐻")
        self.assertEqual(self.messages(chat)[0], "熊は魚🐻を")
        self.leave(chat)

    def test_history_comes_back_also_in_the_next_chat(self):
        chat = self.chat()
        self.say(chat, BEAR, BEAR_EATS)
        self.say(chat, "one" + ALT_ENTER + "two")
        self.say(chat, UP + UP, BEAR_EATS)
        self.leave(chat)
        chat = self.chat("--max-tokens", "1")
        self.say(chat, UP + UP + LEFT + "!")
        self.assertEqual(self.messages(chat)[0], "one\ntw!o")
        self.leave(chat)
        for name in ("chat_history", "last_chat.json"):
            mode = os.stat(self.folder / "state" / "doppler" / name).st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o600, name)

    def test_nothing_is_kept_on_request(self):
        chat = self.chat("--keep-nothing")
        self.say(chat, BEAR, BEAR_EATS)
        self.leave(chat)
        self.assertFalse((self.folder / "state").exists())

    def test_a_paste_of_many_lines_is_one_message(self):
        chat = self.chat("--max-tokens", "1")
        short, lines = "a\rb\rc", [f"line {i}" for i in range(40)]
        self.say(chat, f"\033[200~{short}\033[201~ d")
        self.say(chat, "\033[200~" + "\r".join(lines) + "\033[201~" + " end", "[paste 1: 40 lines, ")
        self.assertEqual(self.messages(chat)[0::2], ["a\nb\nc d", "\n".join(lines) + " end"])
        self.leave(chat)

    def test_a_paste_of_100_kb_is_one_message(self):
        chat = self.chat()
        text = "".join(f"The bear eats fish number {i}.\r" for i in range(3300))
        self.assertGreater(len(text), 100000)
        chat.type("\033[200~" + text + "\033[201~\r")
        chat.expect("[paste 1: 3300 lines, ")
        said = chat.expect(READY)
        self.assertEqual(said.count("The message has"), 1, said)
        self.assertIn("but the context holds", " ".join(said.split()))
        self.say(chat, BEAR, BEAR_EATS)
        self.leave(chat)

    def test_quotes_hold_lines_together(self):
        chat = self.chat("--max-tokens", "1")
        self.say(chat, '"""one')
        self.say(chat, "/exit")
        self.say(chat, 'three"""')
        self.assertEqual(self.messages(chat)[0], "one\n/exit\nthree")
        self.leave(chat)

    def test_every_command_is_acknowledged(self):
        (self.folder / "note.txt").write_text("Bears like honey.\n")
        (self.folder / "binary").write_bytes(b"\xff\x00")
        (self.folder / "bad.json").write_text('{"messages": [{"role": "user", "content": 3}]}')
        chat = self.chat(EDITOR="printf 'What does a fox eat?' >")
        for line, answer in [
            ("/help", "/system [TEXT]"),
            ("/help save", "/save FILE: "),
            ("/hepl", "Did you mean /help?"),
            ("/undo", "There is no turn to take back."),
            ("/retry", "There is no message to answer again."),
            ("/stats", "There is no answer yet."),
            (BEAR, BEAR_EATS),
            ("/stats", "1 answer: "),
            ("/retry", "/set temperature 0.8 first"),
            ("/set temperature 0.8", "temperature is 0.8"),
            ("/set seed 3", "seed is 3"),
            ("/retry", "Another answer:"),
            ("/set temperature 0", "temperature is 0"),
            ("/set temperature -1", "must be a number of 0 or more"),
            ("/set temperatur 1", "Did you mean temperature?"),
            ("/set verbose", "/set stats on"),
            ("/set parameter top_k 3", "top-k is 3"),
            ("/set on-full stop", "on-full is stop"),
            ("/set", "repeat-penalty"),
            ("/set stats on", "stats is on"),
            ("And where does it live?", "stopped by eos"),
            ("/undo", 'Took back "And where does it live?"; 1 turn left.'),
            ("/edit", "in place of the last one:"),
            ("/show", "template: "),
            ("/show template", "<start_of_turn>"),
            ("/show messages", "user: What does a fox eat?"),
            ("/show nothing", "only model, template"),
            ("/file note.txt", "goes with the next message."),
            ("What do they like?", "stopped by"),
            ("/show messages", "note.txt:"),
            ("/file binary", "is no text"),
            ("/file missing", "cannot be opened"),
            ("/system Be brief.", "The system text is set"),
            ("/show system", "Be brief."),
            ("/save kept.json", "Saved 4 messages to kept.json."),
            ("/clear", "The conversation is empty; the system text stays."),
            ("/system none", "There is no system text from here on."),
            ("/load kept.json", "Loaded 4 messages in 2 turns"),
            ("/show system", "Be brief."),
            ("/load bad.json", "message 1 has a content that is no text"),
            ("/load", "Loaded "),
        ]:
            with self.subTest(line=line):
                self.say(chat, line, answer)
        chat.type("/bye\r")
        self.assertEqual(chat.end(), 0)

    def test_ctrl_c_drops_the_line_and_twice_leaves(self):
        chat = self.chat()
        chat.type("something" + CTRL_C)
        chat.expect("once more leaves")
        chat.expect(READY)
        self.say(chat, BEAR, BEAR_EATS)
        chat.type(CTRL_C)
        chat.expect("once more leaves")
        chat.expect(READY)
        shown = len(chat.output)
        chat.type("another line" + LEFT * 3 + CTRL_C)  # is dropped, too
        chat.expect("once more leaves")
        chat.expect(READY)
        self.assertEqual(chat.output[shown:].split(b"\033[J")[1].count(b"> another line"), 1, "the line stands there once")
        chat.type(CTRL_C)
        self.assertEqual(chat.end(), 0)

    def test_ctrl_c_stops_an_answer_and_keeps_what_was_said(self):
        chat = self.chat("--ignore-eos", backend="reference")  # slow, and without an end of its own
        chat.type(BEAR + "\r")
        chat.expect("A bear")
        chat.type(CTRL_C)
        chat.expect("Stopped.")
        chat.expect(READY)
        self.assertTrue(self.messages(chat)[1].startswith("A bear"))
        self.leave(chat)

    def test_words_are_wrapped_at_the_width(self):
        chat = self.chat(columns=20)
        self.say(chat, BEAR, re.compile(rb"A bear eats fish and\r\nhoney\."))
        chat.resize(60)
        self.say(chat, BEAR, BEAR_EATS)
        self.leave(chat)

    def test_tab_completes_commands_and_paths(self):
        (self.folder / "notes").mkdir()
        (self.folder / "notes/bären.txt").write_text("Bears like honey.\n")
        (self.folder / "notes/bäume.txt").write_text("Trees are tall.\n")
        chat = self.chat()
        self.say(chat, "/fi\tno\tb\tr\t", "goes with the next message.")  # /file notes/bären.txt
        self.assertIn(b"notes/b\xc3\xa4ren.txt (", chat.output)
        chat.type("/set t\t\t")
        chat.expect("temperature  top-k  top-p")
        self.say(chat, "e\t0.5", "temperature is 0.5")
        self.say(chat, "/show sy\t", "There is no system text.")
        self.say(chat, BEAR[:5] + "\t" + BEAR[5:])
        self.assertTrue(self.messages(chat)[0].startswith(BEAR), "a message has nothing to complete")
        self.leave(chat)

    def test_run_wraps_words_at_the_width_too(self):
        run = Terminal([DOPPLER, "run", DEMO, BEAR, "--backend", "cpu"], columns=20)
        run.expect(re.compile(rb"A bear eats fish and\r\nhoney\.\r\n"))
        self.assertEqual(run.end(), 0)

    def test_what_cannot_be_answered_keeps_its_file(self):
        (self.folder / "note.txt").write_text("Bears like honey.\n")
        chat = self.chat("--context", "64", "--max-tokens", "4")
        self.say(chat, "/file note.txt", "goes with the next message.")
        self.say(chat, BEAR * 20, "What /file attached goes with the next message")
        self.say(chat, BEAR)
        self.assertEqual(self.messages(chat)[0], BEAR + "\n\nnote.txt:\nBears like honey.")
        self.say(chat, "/file note.txt", "goes with the next message.")
        self.say(chat, "/file none", "Nothing goes with the next message.")
        self.say(chat, "/file none", "No file is attached.")
        self.leave(chat)

    def test_a_session_is_kept_after_each_answer(self):
        chat = self.chat("--session", "s")
        self.say(chat, BEAR, BEAR_EATS)
        os.kill(chat.pid, signal.SIGKILL)
        chat.end()
        chat = Terminal([DOPPLER, "chat", DEMO, "--backend", "cpu", "--session", "s"], cwd=self.folder)
        chat.expect("the conversation goes on after 1 turn")
        chat.expect(READY)
        self.leave(chat)

    def test_the_oldest_turns_go_when_the_context_is_full(self):
        chat = self.chat("--context", "96", "--max-tokens", "20")
        said = ""
        for _ in range(6):
            chat.type(BEAR + "\r")
            chat.expect("eats")
            said += chat.expect(READY)
        self.assertIn("left out. The system text stays.", " ".join(said.split()))
        self.leave(chat)
        chat = self.chat("--context", "96", "--on-full", "stop")
        said = ""
        for _ in range(6):
            chat.type(BEAR + "\r")
            said += chat.expect(READY)
        self.assertNotIn("left out", said)
        self.assertIn("/clear", said)
        self.leave(chat)

    def test_a_terminal_that_only_prints_gets_plain_lines(self):
        chat = Terminal([DOPPLER, "chat", DEMO, "--backend", "cpu", "--keep-nothing"], TERM="dumb")
        chat.expect("> ")
        chat.type(BEAR + "\n")
        chat.expect(BEAR_EATS)
        chat.expect("> ")
        chat.type(CTRL_D)
        self.assertEqual(chat.end(), 0)
        self.assertNotIn(b"\033[?2004h", chat.output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
