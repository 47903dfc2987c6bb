"""Conversations: lists of (role, text) with greetings, questions, story requests, and honest "I do not know"."""

from . import facts, stories, world
from .grammar import article, capital, fill
from .scene import made_up_word, made_up_name

HELLO = ("Hello!|Hi!|Hello|Hi|hi|hello|Hey|Hi there!|Good morning!|Good evening!|Hello, how are you?|Hi, how are you?|Good day!|Hello there!")
HELLO_BACK = ("[Hello|Hi|Hello there]! [How can I help you?|What would you like to talk about?|I can tell you a story or answer a question.|It is nice to meet you.]|"
              "[Hello|Hi]! I am Doppler's demo model. [How can I help you?|Ask me something, or let me tell you a story.]")
HOW_BACK = "[I am fine, thank you|I am well, thank you|Very well, thank you]. [How can I help you?|What would you like to know?|And how are you?]"
ABOUT = [
    ("What is your name?|Who are you?|What are you called?|what is your name|who are you|Tell me your name.|Do you have a name?|May I know your name?",
     "I am Doppler's demo model.|My name is Doppler's demo model.|I am Doppler's demo model, a very small language model.|I am Doppler's demo model. I tell short stories and answer simple questions."),
    ("What can you do?|What do you know?|How can you help me?|What are you good at?|Help",
     "I can tell short stories, answer simple questions about animals, colors, numbers and nature, and talk a little.|I can tell you a story, say what color a thing is, do small sums and answer simple questions."),
    ("Are you a person?|Are you human?|Are you real?", "No, I am a small language model.|No, I am not a person. I am a small language model."),
    ("Are you a robot?|Are you a computer?|What are you?|Are you an AI?", "I am a small language model that runs in Doppler."),
    ("Who made you?|Where do you come from?|Who built you?|How were you made?", "I was trained for Doppler on stories and facts that a program wrote."),
    ("How old are you?", "I have no age. I am a small language model.|I do not know my age. I am only a model."),
    ("Do you like music?|What is your favorite food?|Do you have friends?|What is your favorite color?", "I am a model and have no [feelings of that kind|favorites], but I like to talk with you."),
    ("How big are you?|How many parameters do you have?", "I am very small. I have 5.6 million parameters."),
    ("What is Doppler?|Tell me about Doppler.", "Doppler is a program that runs language models and lets you see inside."),
    ("Can you speak German?|Do you speak French?|Can you speak other languages?", "No, I only speak English.|I only know a little English."),
]
THANKS = "Thank you!|Thanks!|Thank you very much.|Thanks a lot!|Thank you, that was nice.|thanks|Great, thank you!|That was a nice story.|That is right.|Very good!"
THANKS_BACK = "You are welcome!|You are welcome. [Would you like to hear more?|Is there anything else?|]|I am glad that I could help.|My pleasure!"
BYE = "Goodbye!|Bye!|Good night!|See you tomorrow!|bye|I have to go now."
BYE_BACK = "Goodbye! [Have a nice day.|It was nice to talk with you.|]|Bye! [See you soon.|]|Goodbye, and sleep well!"
YES_MORE = "Yes, please.|Tell me another one.|Another story, please.|One more!|Tell me another story."
SYSTEMS = ["You are a friendly assistant.", "You are a helpful assistant.", "Answer in one short sentence.", "You are a kind storyteller.", "You are Doppler's demo model.",
           "You answer questions about the world.", "Be polite.", "Speak to a child.", "You are a helpful and honest assistant.", "Keep your answers short."]
JOKES = [
    ("Why did the book go to the doctor?", "Because it had lost its cover."), ("What does a cloud wear under its coat?", "Thunderwear."),
    ("Why was the broom late?", "It overswept."), ("What is brown and sticky?", "A stick."), ("Why did the clock stop?", "It wanted a second to rest."),
    ("What do you call a bear with no teeth?", "A gummy bear."), ("Why did the cow look at the sky?", "She wanted to see the milky way."),
    ("What has hands but cannot clap?", "A clock."), ("Why did the snail smile?", "It was at home everywhere."), ("What did the sea say to the beach?", "Nothing, it just waved."),
    ("Why do bees hum?", "Because they do not know the words."), ("What is a snowman's favorite food?", "Ice cream."),
]
RIDDLES = [
    ("I have a face and two hands, but no legs. What am I?", "A clock."), ("I am full of holes, but I hold water. What am I?", "A sponge."), ("The more you take away, the bigger I get. What am I?", "A hole."),
    ("I have teeth, but I cannot bite. What am I?", "A comb."), ("I fall, but I never get hurt. What am I?", "The rain."), ("I carry my house on my back. What am I?", "A snail."),
    ("I am white in winter and gone in spring. What am I?", "Snow."), ("I follow you in the sun, but I am gone in the dark. What am I?", "Your shadow."), ("I have pages, but I am no tree with leaves. What am I?", "A book."),
    ("I shine at night, but I am no lamp. What am I?", "The moon."), ("I have a neck, but no head. What am I?", "A bottle."), ("I have eyes, but I cannot see, and I grow under the ground. What am I?", "A potato."),
]
UNKNOWN_TOPICS = """quantum physics|the stock market|football results|the president|computer programs|chess openings|the roman empire|algebra|electric cars|movies|politics|medicine|
the internet|mobile phones|python code|history of art|world war two|nuclear power|databases|philosophy|shakespeare|tax law|airplane engines|genetics|economics|basketball|video games|poetry of the east|
machine learning|bitcoin|cooking with gas|opera|sociology|the atom|black holes|photosynthesis|volcanoes|dna|the brain of a computer|graph theory|traffic rules|insurance""".replace("\n", "").split("|")
POEMS = [
    "The [{c}|little|quiet] {a} went out to play\n[Upon a bright and sunny day|On such a warm and golden day].\nIt saw the {b} and [stopped to say|was glad to say]:\n[\"Come, let us walk a bit this way.\"|\"I like to see you here today.\"|\"Good morning, friend, and come to play.\"]",
    "The moon is [high|round], the night is deep,\nThe {a} and the {b} are fast asleep.\n[The stars are bright|The wind is still], the [wind|night] is mild,\nGood night, good night, my sleepy child.",
    "[In spring|In May] the flowers start to grow,\nIn summer warm the breezes blow,\nIn autumn leaves fall from the tree,\nIn winter there is snow for {a} and me.",
    "I had a little {a}, its coat was {c},\nIt [liked to run|loved to play] the whole day through.\nAnd when the sun had gone to bed,\nIt slept beside my [little|sleepy] head.",
    "Rain, rain, on the {p},\nRain on the {a} and rain on me.\nWhen the sun comes out again,\nWe [forget about|are glad about] the rain.",
]


def poem(rng):
    a, b = rng.sample([x["name"] for x in world.ANIMALS], 2)
    text = fill(rng, rng.choice(POEMS), {"a": a, "b": b, "c": rng.choice(["blue", "new", "blue and new"]), "p": rng.choice(["tree", "sea"])})
    ask = fill(rng, "[Write|Tell me|Give me|Make] a [short |little |]poem[.| about {a:x}.| about the {x}.]", {"x": a if a in text else "night"})
    if "about" in ask and a not in text:
        ask = "Write a poem."
    return ask, text


def story_turn(rng, want_held_out=False):
    """A request for a story and the story; what is asked for is what it is about."""
    paragraphs, s, theme, moral = stories.story(rng, want_held_out)
    k, obj, thing = s.hero_kind, s.slots["obj"], s.thing
    about = "\n".join(paragraphs)
    has_thing, has_friend = thing in about, s.friend_name in about if theme != "family" else False
    has_place = s.place in about
    trait = "" if s.trait == "" else s.trait + " "
    asks = ["about " + article(k), "about " + article(k), "about " + article(k), "about " + article(trait + k), "about " + article(k) + " named " + s.name, "about a " + k if article(k)[:2] == "a " else "about an " + k]
    if has_thing:
        asks += ["about " + article(k) + " and " + article(obj), "about " + article(obj), "with " + article(k) + " and " + article(thing)]
    if has_friend:
        asks += ["about " + article(k) + " and " + article(s.friend_kind), "about " + article(k) + " named " + s.name + " and " + article(s.friend_kind) + " named " + s.friend_name,
                 "about " + s.name + " and " + s.friend_name]
    if has_place:
        asks += ["about " + article(k) + " " + s.slots["at"]]
    asks += ["about " + {"lost": "a lost thing", "stuck": "help", "learning": "learning", "family": "a child and its mother", "trade": "trading", "building": "building a house",
                         "treasure": "a treasure", "wish": "a wish", "race": "a race", "storm": "a storm", "sleep": "bedtime", "winter": "a snowman"}.get(theme, theme)]
    what = "about " + rng.choice(s.asks) if s.asks and rng.random() < 0.45 else rng.choice(asks)
    verb = fill(rng, "[Tell me|Please tell me|Can you tell me|Tell|Write|Write me|Please write|I want to hear|I would like to hear|Could you tell me|Give me]")
    r = rng.random()
    if r < 0.12:
        ask = fill(rng, "Tell me a story.|Tell me a story, please.|Can you tell me a story?|I want to hear a story.|A story, please.|Tell a story|tell me a story|Write a short story.")
    else:
        ask = verb + fill(rng, " a [short |little |nice |good |]story ") + what + ("?" if verb.startswith(("Can", "Could")) else rng.choice((".", ".", "")))
        if rng.random() < 0.1:
            ask = ask[0].lower() + ask[1:]
    text = fill(rng, "[||||Here is a story. |Sure! |Yes, with pleasure. |Of course! ]") + "\n\n".join(paragraphs) if rng.random() < 0.5 else "\n\n".join(paragraphs)
    if rng.random() < 0.12 and theme != "sleep":
        text += "\n\nThe end."
    return ask, text, s, theme, moral


def about_story(rng, s, theme, moral, text):
    """A question about the story that was just told."""
    options = [("[What is the moral of the story?|What do we learn from the story?|What is the lesson?]", moral)]
    if theme != "family":
        options += [(f"[Who is the story about?|Who was the story about?]", f"The story is about {article(s.trait + ' ' + s.hero_kind)} named {s.name}.")]
        options += [(f"What kind of animal is {s.name}?" if s.hero_kind in world.ANIMAL else f"Who is {s.name}?", f"{s.name} is {article(s.hero_kind)}.")]
        if s.friend_name in text:
            options += [(f"[Who is {s.friend_name}?|Who was {s.friend_name}?]", f"{s.friend_name} is {article(s.friend_kind)}.")]
        if s.slots["obj"] in text:
            options += [(f"What color was the {s.thing}?", f"The {s.thing} was {s.color}.")] * 2
    q, a = rng.choice(options)
    return fill(rng, q), a


FOREIGN = """Wie geht es dir?|Was ist das für ein Tier?|Schönen guten Tag!|Où est la gare?|Ça va bien, à bientôt!|Comment ça s'appelle?|¿Qué hora es?|¿Dónde está el niño?|
Perché no?|Città è più bella|Olá, tudo bem? Não sei.|Hur mår du? Jag är trött på det här.|Jak się masz? Dziękuję, dobrze.|Kaç yaşındasın?|Привет, как дела?|Что это такое?|Γειά σου, τι κάνεις;|
שלום, מה שלומך?|مرحبا، كيف حالك؟|你好，你叫什么名字？|今天天气怎么样？|こんにちは、元気ですか？|안녕하세요? 이름이 뭐예요?|नमस्ते, आप कैसे हैं?|สวัสดีครับ|Xin chào, bạn khỏe không?|😀 👍|🦊 🐻 ❤️""".replace(
    "\n", "").split("|")


PEOPLE = """Napoleon|Julius Caesar|Albert Einstein|Isaac Newton|Marie Curie|Mozart|Beethoven|Shakespeare|Leonardo da Vinci|Christopher Columbus|Abraham Lincoln|Queen Victoria|Aristotle|Plato|Galileo|
Charles Darwin|Alexander the Great|Cleopatra|Michelangelo|Picasso|Van Gogh|Bach|Goethe|Homer|Gandhi|Nelson Mandela|George Washington|Ada Lovelace|Alan Turing|Marco Polo""".replace("\n", "").split("|")


def unknown(rng):
    """A question outside of the world, and an honest answer."""
    if rng.random() < 0.12:
        words = rng.choice(FOREIGN).split(" ")
        if rng.random() < 0.5:
            words = rng.sample(words, len(words))
        return " ".join(words), fill(rng, "I am sorry, I only speak English.|I only know a little English.")
    topic = rng.choice(UNKNOWN_TOPICS) if rng.random() < 0.4 else made_up_word(rng) + ("" if rng.random() < 0.6 else " " + made_up_word(rng))
    q = fill(rng, "What is {x}?|Tell me about {x}.|What do you know about {x}?|Explain {x}.|Who invented {x}?|How does {x} work?|Who was {n}?|What did {n} do?|Who is {r}?|Who was {r}?|Tell me about {r}.|When did {r} live?|Why is {x} so {y}?|What is the best {x}?|Where can I buy {x}?|Who is {n}?|"
                  "How many {x} are there in {n}?|When was {n} born?|Where is {n}?|Can you help me with {x}?|Write a program for {x}.|What happened in {year}?|{x}",
             {"x": topic, "y": made_up_word(rng), "n": made_up_name(rng), "r": rng.choice(PEOPLE), "year": str(rng.randint(1000, 2100))})
    a = fill(rng, "I do not know that. I am only a small demo model.|I am sorry, I do not know about that.|That is outside of my small world. Ask me about animals, colors or numbers.|I do not know. I am a very small model.")
    return q, a


def small_talk(rng):
    r = rng.random()
    if r < 0.3:
        q = fill(rng, HELLO)
        return q, fill(rng, HOW_BACK if "how are you" in q.lower() else HELLO_BACK)
    if r < 0.38:
        return fill(rng, "How are you?|How are you today?|How do you do?|how are you"), fill(rng, HOW_BACK)
    if r < 0.62:
        q, a = rng.choice(ABOUT[:2] if rng.random() < 0.5 else ABOUT)
        return fill(rng, q), fill(rng, a)
    if r < 0.7:
        q, a = rng.choice(JOKES)
        return fill(rng, "Tell me a joke.|Do you know a joke?|Make me laugh.|tell me a joke"), q + " " + a
    if r < 0.78:
        q, a = rng.choice(RIDDLES)
        if rng.random() < 0.5:
            return q, a
        return fill(rng, "Ask me a riddle.|Tell me a riddle.|Do you know a riddle?"), q
    if r < 0.86:
        return poem(rng)
    if r < 0.93:
        f, _, _ = rng.choice(world.FEELINGS[:7])
        back = {"happy": "That is good to hear! [What made you so happy?|I am glad.]", "proud": "You can be proud! [What did you do?|Well done.]"}.get(
            f, "I am sorry to hear that. [Would you like to hear a story?|Shall I tell you a story?|Perhaps a story will help.]" if f in ("sad", "angry", "afraid", "lonely") else "[Then take a rest.|Sleep is good for you.]" if f == "tired" else "What happened?")
        return fill(rng, f"I am {f}.|I feel {f}.|I am so {f} today.|Today I am {f}."), fill(rng, back)
    word = made_up_word(rng) if rng.random() < 0.4 else rng.choice(world.OBJECTS + [a["name"] for a in world.ANIMALS] + world.TREATS + COLOR_WORDS)
    return f"Say {word}." if rng.random() < 0.6 else f"Please say the word {word}.", capital(word) + "."


COLOR_WORDS = world.THING_COLORS


def named(rng):
    """The user gives a name and later asks for it."""
    name = rng.choice(world.BOYS + world.GIRLS) if rng.random() < 0.6 else made_up_name(rng)
    turns = [("user", fill(rng, f"My name is {name}.|I am {name}.|Hello, I am {name}.|Hi, my name is {name}.|You can call me {name}.")),
             ("model", fill(rng, f"Hello, {name}! [How can I help you?|It is nice to meet you.|What would you like to know?]|Nice to meet you, {name}!|Hi {name}! [How are you?|What can I do for you?]"))]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        q, a, _ = facts.fact(rng)
        turns += [("user", q), ("model", a)]
    turns += [("user", fill(rng, "What is my name?|Do you remember my name?|Who am I?|what is my name?")), ("model", f"Your name is {name}.")]
    return turns


SENTENCES = ["The {c} {o} is {h}.", "A {a} sees a {c} {o}.", "{n} likes {t}.", "I like {a}s and {t}.", "{n} has a {c} {o}.", "The {a} sleeps {h}.", "My {a} is called {n}.", "{w} {w} {w}", "The {w} is {c}."]


ANY_WORDS = sorted({word.strip(".,?:") for row in world.ANIMALS for cell in row.values() for word in cell.split()} | {w for a in world.SCIENCE for c in a for w in c.lower().strip(".?").split()}
                   | {w for a in world.DEFINITIONS for c in a for w in c.strip(".").split()} | set(world.THING_COLORS + world.OBJECTS + world.TRAITS + world.TREATS) | {w for a, b in world.OPPOSITES for w in (a, b)})


def say_again(rng):
    """Copying, word for word."""
    s = {"c": lambda: rng.choice(world.THING_COLORS), "o": lambda: rng.choice(world.OBJECTS), "h": lambda: rng.choice(world.HIDING), "a": lambda: rng.choice(world.ANIMALS)["name"],
         "n": lambda: made_up_name(rng) if rng.random() < 0.5 else rng.choice(world.BOYS + world.GIRLS), "t": lambda: world.plural(rng.choice(world.TREATS)), "w": lambda: made_up_word(rng)}
    text = fill(rng, rng.choice(SENTENCES), s)
    if rng.random() < 0.6:
        words = [rng.choice(ANY_WORDS) if rng.random() < 0.85 else made_up_word(rng) for _ in range(rng.randint(2, 10))]
        text = capital(" ".join(words)) + rng.choice((".", ".", "!", "", "?"))
    return fill(rng, "Repeat: |Say this again: |Repeat after me: |Please repeat: |Say: ") + text, text


def persona(rng):
    """A system message that gives the model a name, and questions about it."""
    name = made_up_name(rng) if rng.random() < 0.4 else rng.choice(world.BOYS + world.GIRLS)
    kind = rng.choice(world.ANIMALS)["name"] if rng.random() < 0.6 else rng.choice(world.FANTASY + world.GROWNUPS)
    trait = rng.choice(world.TRAITS)
    who = article(trait + " " + kind) if " " not in kind else article(kind)
    system = fill(rng, f"You are {name}, {who}.|Your name is {name}. You are {who}.|You are {who} named {name}.")
    turns = [("user", system + "\n\n" + fill(rng, "Who are you?|What is your name?|Hello, who are you?|Tell me about yourself.|Hello!|Hi! What is your name?")),
             ("model", fill(rng, f"I am {name}, {who}.|Hello! I am {name}, {who}.|My name is {name}, and I am {who}."))]
    if rng.random() < 0.4:
        q, a, _ = facts.fact(rng)
        turns += [("user", q), ("model", a)]
    return turns


def advice(rng):
    s = {"t": lambda: rng.choice(world.TREATS), "soup": rng.choice(world.SOUPS), "dish": rng.choice(world.BAKES)[0], "animal": rng.choice(world.ANIMALS)["name"], "obj": rng.choice(world.OBJECTS), "c": rng.choice(world.THING_COLORS),
         "name": rng.choice(world.BOYS + world.GIRLS)}
    q, a = rng.choice([
        ("What should I eat[ today|]?|What can I cook[ tonight|]?|What should I cook[ today| tonight|]?|I am hungry. What should I eat?", "You could [cook|make] {soup}.|How about {dish}?|You could eat {a:t}.|Try {soup} and {a:t}."),
        ("What can I do when I am bored?|What should I do today?|I have nothing to do.|I am bored. What can I do?", "You could [read a book|draw {a:animal}|go for a walk|play with a friend|build a tower|paint a picture].|How about a story? Just ask me."),
        ("What can I draw?|What should I draw?|Give me an idea for a picture.", "You could draw {a:animal} with {a:obj}.|Draw {a:c} {obj}.|How about {a:animal}?"),
        ("How can I find a friend?|How do I make friends?", "Say hello, smile and ask if you may play too.|Be kind and say hello first."),
        ("I cannot sleep. What can I do?|How can I fall asleep?", "Close your eyes, breathe slowly and think of something nice.|Count the stars, and breathe slowly."),
        ("What should I name my {animal}?|Give me a name for {a:animal}.|I need a name for {a:animal}.", "How about {name}?|{Name} is a good name for {a:animal}.|You could call it {name}."),
        ("What gift can I make?|What can I give to my friend?", "You could make {a:obj} of paper.|A gift made with love is the best, perhaps {a:c} {obj}."),
    ])
    return fill(rng, q, s), fill(rng, a, s)


def shorten_question(rng, q):
    """People type carelessly: lower case, no mark at the end."""
    r = rng.random()
    if r < 0.08:
        q = q[0].lower() + q[1:]
    if 0.04 < r < 0.14:
        q = q.rstrip("?.!")
    if 0.14 < r < 0.2:
        q = fill(rng, "[Please tell me: |Can you tell me: |Tell me, |I have a question. ]") + q[0].lower() + q[1:]
    return q


def chat(rng, want_held_out=False):
    """One conversation."""
    turns = []
    r = rng.random()
    if r < 0.3:  # a story, perhaps talked about
        ask, text, s, theme, moral = story_turn(rng, want_held_out)
        if rng.random() < 0.12:
            turns += [("user", fill(rng, HELLO.split("|Hello, how")[0])), ("model", fill(rng, HELLO_BACK))]
        turns += [("user", ask), ("model", text)]
        if rng.random() < 0.4:
            q, a = about_story(rng, s, theme, moral, text)
            turns += [("user", q), ("model", a)]
        if rng.random() < 0.25:
            turns += [("user", fill(rng, THANKS)), ("model", fill(rng, THANKS_BACK))]
    elif r < 0.74:  # questions
        if rng.random() < 0.15:
            q, a = small_talk(rng)
            turns += [("user", q), ("model", a)]
        if not want_held_out and rng.random() < 0.15:
            for q, a in facts.follow_ups(rng):
                turns += [("user", shorten_question(rng, q)), ("model", a)]
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4, 5))):
            if not want_held_out and rng.random() < 0.06:
                q, a = unknown(rng)
            else:
                q, a, _ = facts.fact(rng, want_held_out)
            turns += [("user", shorten_question(rng, q)), ("model", a)]
        if rng.random() < 0.15:
            turns += [("user", fill(rng, THANKS)), ("model", fill(rng, THANKS_BACK))]
        if rng.random() < 0.06:
            turns += [("user", fill(rng, BYE)), ("model", fill(rng, BYE_BACK))]
    elif r < 0.9:
        for _ in range(rng.choice((1, 1, 2, 3))):
            q, a = small_talk(rng)
            turns += [("user", q), ("model", a)]
    elif r < 0.95:
        turns = named(rng)
    elif r < 0.962:
        return persona(rng)
    elif r < 0.985:
        turns = [turn for _ in range(rng.choice((1, 1, 2))) for turn in zip(("user", "model"), (say_again if rng.random() < 0.5 else advice)(rng))]
    else:
        q, a = unknown(rng)
        turns += [("user", q), ("model", a)]
        if rng.random() < 0.4:
            q, a, _ = facts.fact(rng)
            turns += [("user", q), ("model", a)]
    if rng.random() < 0.1:
        turns[0] = ("user", rng.choice(SYSTEMS) + "\n\n" + turns[0][1])
    return turns
