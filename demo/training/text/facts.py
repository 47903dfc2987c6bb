"""Facts: each function gives (question, answer, statement) with their wording chosen at random."""

from . import world
from .grammar import capital, fill

W = world.WORDS
COLOR_NAMES = "red blue green yellow orange purple pink white black brown gray".split()
HELD_OUT_SHARE = 8  # one comparison in eight is never seen in training


def pair_held_out(a, b):
    """Whether this pair of things is never compared in the training text (order does not matter)."""
    code = 0
    for char in "/".join(sorted((a, b))):
        code = (code * 31 + ord(char)) % 1000003
    return code % HELD_OUT_SHARE == 3


def color(rng):
    thing, hue, why = rng.choice(world.COLORS)
    if rng.random() < 0.1:
        thing, hue, why = world.COLORS[0]
    slots = {"x": thing, "c": hue, "why": why, "wrong": rng.choice([c for c in COLOR_NAMES if c != hue])}
    are = "are" if thing == "rain clouds" else "is"
    kind = rng.random()
    if kind < 0.6:
        question = fill(rng, "What color " + are + " {x}?|What is the color of {x}?|Which color does {x} have?|Tell me the color of {x}.|What color does {x} have?".replace("does {x} have", "do {x} have" if are == "are" else "does {x} have"), slots)
        answer = fill(rng, "{X} " + are + " {c}.|The color of {x} is {c}.|{X} " + are + " {c}. {why}|The color of {x} is {c}. {why}", slots)
    elif kind < 0.8:
        question = fill(rng, ("Is" if are == "is" else "Are") + " {x} {c}?", slots)
        answer = fill(rng, "Yes, {x} " + are + " {c}.", slots)
    else:
        question = fill(rng, ("Is" if are == "is" else "Are") + " {x} {wrong}?", slots)
        answer = fill(rng, "No, {x} " + are + " not {wrong}. {X} " + are + " {c}.|No, {x} " + are + " {c}.", slots)
    statement = fill(rng, "The color of {x} is {c}. {why}|The color of {x} is {c}. {why}|{X} " + are + " {c}. {why}|{X} " + are + " {c}.", slots)
    return question, answer, statement


def name_thing_of_color(rng):
    hue = rng.choice("blue green white yellow red black brown gray orange pink purple".split())
    things = [t for t, c, _ in world.COLORS if c == hue]
    few = rng.sample(things, min(3, len(things)))
    listed = few[0] if len(few) == 1 else ", ".join(few[:-1]) + " and " + few[-1]
    return (fill(rng, "What is " + hue + "?|Name something " + hue + ".|Which things are " + hue + "?|Tell me something that is " + hue + "."),
            capital(listed) + (" are " if len(few) > 1 else " is ") + hue + ".", capital(listed) + (" are " if len(few) > 1 else " is ") + hue + ".")


def animal(rng, row=None, kind=None):
    row = row or rng.choice(world.ANIMALS)
    legs = int(row["legs"])
    few = sorted(a["name"] for a in world.ANIMALS if a["class"] == row["class"] and a is not row)
    s = {"x": row["name"], "xs": world.plural(row["name"]), "cls": row["class"], "color": row["color"], "home": row["home"], "hab": row["habitat"],
         "inhome": world.in_home(row), "food": row["food"], "sound": row["sound"], "baby": row["baby"], "cover": row["cover"], "skill": row["skill"],
         "legs": "no legs" if not legs else W[legs] + " legs", "other": rng.choice(few or ["fish"]),
         "on": "on" if row["habitat"] in ("the farm", "the savanna", "the beach") else "in"}
    kinds = [
        ("What kind of animal is {a:x}?|What is {a:x}?", "{A:x} is {a:cls}.", "{A:x} is {a:cls}.|{Xs} are {cls}s." if row["class"] != "fish" else "{A:x} is a fish."),
        ("What color is {a:x}?|What does {a:x} look like?", "{A:x} is {color}.", "{A:x} is {color}.|Its color is {color}."),
        ("Where does {a:x} live?|Where do {xs} live?|What is the home of {a:x}?", "{A:x} lives {inhome}.|{Xs} live {on} {hab}.|{A:x} lives {on} {hab}. Its home is {home}.", "{A:x} lives {on} {hab}. Its home is {home}.|It lives {on} {hab}.|Its home is {home}."),
        ("What does {a:x} eat?|What do {xs} eat?|What is the food of {a:x}?", "{A:x} eats {food}.|{Xs} eat {food}.", "It eats {food}.|{A:x} eats {food}.|{Xs} like to eat {food}."),
        ("What is a young {x} called?|What do you call a young {x}?|What is a baby {x} called?", "A young {x} is called {a:baby}.|A baby {x} is called {a:baby}.", "A young {x} is called {a:baby}.|Its young one is called {a:baby}."),
        ("How many legs does {a:x} have?", "{A:x} has {legs}.", "It has {legs}.|{A:x} has {legs}."),
        ("What can {a:x} do?|What is {a:x} good at?", "{A:x} can {skill}.", "{A:x} can {skill}.|It can {skill}."),
        ("What covers the body of {a:x}?|What is {a:x} covered with?", "{A:x} is covered with {cover}.", "Its body is covered with {cover}.|{A:x} has {cover}."),
        ("Tell me about {xs}.|Tell me about {a:x}.|What do you know about {xs}?|Tell me something about the {x}.",
         "{A:x} is {a:cls}. It [lives {on} {hab}|eats {food}]. [A young {x} is called {a:baby}.|It can {skill}.|It has {legs} and is covered with {cover}.]|{A:x} is {color} and lives {on} {hab}. It eats {food} and can {skill}.", "{Xs} live {on} {hab} and eat {food}."),
        ("Is {a:x} {a:cls}?", "Yes, {a:x} is {a:cls}.", "{A:x} is {a:cls}, like {a:other}."),
    ]
    if row["sound"] != "make no sound":
        kinds.append(("What sound does {a:x} make?|What does {a:x} say?|How does {a:x} sound?", "{Xs} {sound}.|{A:x} makes this sound: it {sounds}.", "{Xs} {sound}."))
        sound = row["sound"]
        s["sounds"] = sound + "es" if sound.endswith(("s", "sh", "ch")) else sound[:-1] + "ies" if sound.endswith("y") and sound[-2] not in "aeiou" else sound + "s"
    wrong = rng.choice([c for c in ("mammal", "bird", "fish", "insect", "reptile") if c != row["class"]])
    s["wrong"] = wrong
    kinds.append(("Is {a:x} {a:wrong}?", "No, {a:x} is not {a:wrong}. It is {a:cls}.|No, {a:x} is {a:cls}.", "{A:x} is not {a:wrong} but {a:cls}."))
    can = {"fly": row["class"] == "bird" and row["name"] not in ("penguin", "hen", "rooster", "peacock") or row["name"] in ("bat", "bee", "butterfly", "ladybug", "firefly"),
           "swim": row["class"] == "fish" or row["name"] in ("duck", "otter", "beaver", "seal", "whale", "dolphin", "goose", "swan", "penguin", "frog", "turtle", "crocodile", "hippo", "octopus", "tiger")}
    verb = rng.choice(["fly", "swim"])
    if can[verb] or row["class"] in ("mammal", "bird") and verb == "fly" or row["name"] in ("snail", "worm", "hen", "spider", "butterfly", "bee"):
        s["verb"] = verb
        kinds.append(("Can {a:x} {verb}?", "Yes, {a:x} can {verb}." if can[verb] else "No, {a:x} cannot {verb}." + (" But it can {skill}." if verb not in row["skill"] else ""), "{A:x} can {verb}." if can[verb] else "{A:x} cannot {verb}."))
    q, a, t = rng.choice(kinds) if kind is None else kinds[kind]
    return fill(rng, q, s), fill(rng, a, s), fill(rng, t, s)


def follow_ups(rng):
    """Questions that only make sense after the one before: [(question, answer)]."""
    row = rng.choice(world.ANIMALS)
    a_name = ("an " if row["name"][0] in "aeiou" else "a ") + row["name"]
    if rng.random() < 0.5:  # "and what does it eat?"
        out = []
        for kind in rng.sample(range(8), rng.randint(2, 4)):
            q, a, _ = animal(rng, row, kind)
            if out:
                if a_name not in q:
                    continue
                q = q.replace(a_name, "it")
                if rng.random() < 0.4:
                    q = "And " + q[0].lower() + q[1:]
            out.append((q, a))
        return out
    kind = rng.choice((1, 2, 3, 5, 6, 7))  # "and a bear?"
    out = [animal(rng, row, kind)[:2]]
    for other in rng.sample(world.ANIMALS, rng.randint(1, 3)):
        if other is not row:
            name = ("an " if other["name"][0] in "aeiou" else "a ") + other["name"]
            out.append((fill(rng, "And " + name + "?|What about " + name + "?"), animal(rng, other, kind)[1]))
    return out


def animal_text(rng):
    """A short text on one animal."""
    row = rng.choice(world.ANIMALS)
    seen, out = set(), []
    for _ in range(rng.randint(5, 9)):
        text = animal(rng, row)[2]
        if text not in seen:
            seen.add(text)
            out.append(text)
    out.sort(key=lambda t: t.startswith("It"))
    if out[0].startswith("It"):
        out[0] = capital("the " + row["name"] + " is an animal. ") + out[0]
    return " ".join(out)


def young(rng):
    row = rng.choice(world.ANIMALS)
    same = [a["name"] for a in world.ANIMALS if a["baby"] == row["baby"]]
    s = {"baby": row["baby"], "x": row["name"]}
    if len(same) > 1:
        return animal(rng, row)
    return fill(rng, "What is {a:baby}?|What does {a:baby} become?", s), fill(rng, "{A:baby} is a young {x}.", s), fill(rng, "{A:baby} is a young {x}.", s)


def who_does(rng):
    row = rng.choice(world.ANIMALS)
    options = [a for a in world.ANIMALS if a["class"] == row["class"]]
    few = rng.sample(options, min(3, len(options)))
    if len(few) < 3:
        return animal(rng)
    s = {"cls": row["class"], "a": few[0]["name"], "b": few[1]["name"], "c": few[2]["name"]}
    return (fill(rng, "Name three {cls}s.|Name some {cls}s.|Which {cls}s do you know?|Can you name three {cls}s?", s) if row["class"] != "fish" else "Name three fish.",
            fill(rng, "{A:a}, {a:b} and {a:c}.|Three {cls}s are the {a}, the {b} and the {c}." if row["class"] != "fish" else "Three fish are the {a}, the {b} and the {c}.", s),
            fill(rng, "{A:a}, {a:b} and {a:c} are {cls}s." if row["class"] != "fish" else "The {a}, the {b} and the {c} are fish.", s))


SCALES = [
    ([(("an " if a["name"][0] in "aeiou" else "a ") + a["name"]) for a in sorted(world.ANIMALS, key=lambda a: int(a["size"]))],
     "bigger", "smaller", [int(a["size"]) for a in sorted(world.ANIMALS, key=lambda a: int(a["size"]))], 9),
    (world.SIZES, "bigger", "smaller", list(range(len(world.SIZES))), 2),
    (world.SPEEDS, "faster", "slower", list(range(len(world.SPEEDS))), 2),
    (world.WEIGHTS, "heavier", "lighter", list(range(len(world.WEIGHTS))), 2),
]


def compare(rng, held_out=False):
    while True:
        names, more, less, ranks, gap = SCALES[0] if rng.random() < 0.5 else rng.choice(SCALES)
        i, j = rng.randrange(len(names)), rng.randrange(len(names))
        if abs(ranks[i] - ranks[j]) >= gap and pair_held_out(names[i], names[j]) == held_out:
            break
    if ranks[i] < ranks[j]:
        i, j = j, i  # i is the larger one
    s = {"big": names[i], "small": names[j], "more": more, "less": less}
    s["p"], s["q"] = (names[i], names[j]) if rng.random() < 0.5 else (names[j], names[i])
    kind = rng.randrange(4)
    statement = fill(rng, "{Big} is {more} than {small}.|{Small} is {less} than {big}.", s)
    if kind == 0:
        return fill(rng, "Which is {more}, {p} or {q}?|What is {more}, {p} or {q}?", s), fill(rng, "{Big} is {more} than {small}.", s), statement
    if kind == 1:
        return fill(rng, "Which is {less}, {p} or {q}?|What is {less}, {p} or {q}?", s), fill(rng, "{Small} is {less} than {big}.", s), statement
    yes = s["p"] == s["big"]
    if kind == 2:
        return fill(rng, "Is {p} {more} than {q}?", s), ("Yes, {p} is {more} than {q}." if yes else "No, {p} is {less} than {q}.").format(**s), statement
    return fill(rng, "Is {p} {less} than {q}?", s), ("No, {p} is {more} than {q}." if yes else "Yes, {p} is {less} than {q}.").format(**s), statement


def arithmetic(rng):
    kind = rng.random()
    if kind < 0.4:
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        r, op, word = a + b, "+", "plus"
    elif kind < 0.7:
        a = rng.randint(0, 20)
        b = rng.randint(0, a)
        r, op, word = a - b, "-", "minus"
    else:
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        r, op, word = a * b, "*", "times"
    if rng.random() < 0.35 and max(a, b, r) <= 20:
        a, b, r, op = W[a], W[b], W[r], word
    elif rng.random() < 0.6:
        op = word
    text = f"{a} {op} {b} is {r}."
    return fill(rng, f"What is {a} {op} {b}?|How much is {a} {op} {b}?|{capital(str(a))} {op} {b}?"), capital(text), capital(text)


def word_problem(rng):
    a, b = rng.randint(2, 10), rng.randint(1, 9)
    name = rng.choice(world.BOYS + world.GIRLS)
    he = "he" if name in world.BOYS else "she"
    one = rng.choice(world.TREATS)
    t = world.plural(one)
    if rng.random() < 0.5:
        r = a + b
        story = fill(rng, f"{name} has {W[a]} {t}. {capital(he)} [gets|finds|buys] {W[b]} more.")
    else:
        b = min(b, a)
        r = a - b
        story = fill(rng, f"{name} has {W[a]} {t}. {capital(he)} [eats|gives away|loses] {W[b]}.")
    left = "no " + t if r == 0 else W[r] + " " + (one if r == 1 else t)
    answer = f"{name} has {left}." if rng.random() < 0.6 else f"Now {name} has {left}."
    return f"{story} How many {t} does {name} have now?", answer, f"{story} {answer}"


def numbers(rng):
    n = rng.randint(1, 40)
    kind = rng.randrange(6)
    if kind == 0:
        return fill(rng, f"What comes after {n}?|Which number comes after {n}?"), f"After {n} comes {n + 1}.", f"After {n} comes {n + 1}."
    if kind == 1:
        return fill(rng, f"What comes before {n}?|Which number comes before {n}?"), f"Before {n} comes {n - 1}.", f"Before {n} comes {n - 1}."
    if kind == 2:
        m = rng.randint(1, 40)
        if m == n:
            m += 1
        return f"Which number is bigger, {n} or {m}?", f"{max(n, m)} is bigger than {min(n, m)}.", f"{max(n, m)} is bigger than {min(n, m)}."
    if kind == 3:
        what = "even" if n % 2 == 0 else "odd"
        return f"Is {n} even or odd?", f"{n} is {what}.", f"{n} is an {what} number."
    start = rng.randint(1, 15)
    end = start + rng.randint(3, 9)
    if rng.random() < 0.4:
        start, end = 1, rng.choice((5, 10, 10, 12, 20))
    line = ", ".join(str(i) for i in range(start, end + 1)) + "."
    if kind == 4 and start == 1:
        return fill(rng, f"Count to {end}.|Can you count to {W[end]}?|Please count to {end}."), line, "Let us count: " + line
    if kind == 4:
        return fill(rng, f"Count from {start} to {end}.|Please count from {start} to {end}."), line, "Let us count: " + line
    top = rng.randint(3, 10)
    line = ", ".join(str(i) for i in range(top, 0, -1)) + "."
    return fill(rng, f"Count down from {top}.|Count backwards from {top}."), line, "Let us count backwards: " + line


def calendar(rng):
    kind = rng.randrange(7)
    i, j = rng.randrange(7), rng.randrange(12)
    d, m = world.DAYS, world.MONTHS
    if kind == 0:
        t = f"The day after {d[i]} is {d[(i + 1) % 7]}."
        return fill(rng, f"What day comes after {d[i]}?|Which day comes after {d[i]}?|Today is {d[i]}. What day is tomorrow?"), fill(rng, f"After {d[i]} comes {d[(i + 1) % 7]}.|{t}"), t
    if kind == 1:
        t = f"The day before {d[i]} is {d[i - 1]}."
        return fill(rng, f"What day comes before {d[i]}?|Which day comes before {d[i]}?|Today is {d[i]}. What day was yesterday?"), fill(rng, f"Before {d[i]} comes {d[i - 1]}.|{t}"), t
    if kind == 2:
        t = f"The month after {m[j]} is {m[(j + 1) % 12]}."
        return fill(rng, f"What month comes after {m[j]}?|Which month comes after {m[j]}?"), fill(rng, f"After {m[j]} comes {m[(j + 1) % 12]}.|{t}"), t
    if kind == 3:
        t = f"The month before {m[j]} is {m[j - 1]}."
        return fill(rng, f"What month comes before {m[j]}?|Which month comes before {m[j]}?"), fill(rng, f"Before {m[j]} comes {m[j - 1]}.|{t}"), t
    if kind == 4:
        t = f"{m[j]} is in {world.SEASON_OF[m[j]]}."
        return fill(rng, f"In which season is {m[j]}?|Which season is it in {m[j]}?"), t, fill(rng, t + f"|In {m[j]} it is {world.SEASON_OF[m[j]]}.")
    if kind == 5:
        t = "The days of the week are " + ", ".join(d[:-1]) + " and " + d[-1] + "."
        return fill(rng, "What are the days of the week?|Name the days of the week."), t, t
    t = "The months of the year are " + ", ".join(m[:-1]) + " and " + m[-1] + "."
    return fill(rng, "What are the months of the year?|Name the months of the year."), t, t


def made_of(rng):
    thing, stuff, why = rng.choice(world.MADE_OF)
    s = {"x": thing, "m": stuff, "why": why}
    return (fill(rng, "What is {x} made of?|What do people make {x} of?", s), fill(rng, "{X} is made of {m}.|{X} is made of {m}, because {why}.", s),
            fill(rng, "{X} is made of {m}.|{X} is made of {m}, because {why}.|People make {x} of {m}.", s))


def tool(rng):
    thing, use = rng.choice(world.TOOLS)
    s = {"x": thing, "u": use}
    if rng.random() < 0.3:
        return fill(rng, "What do you need to {u}?|What do you use to {u}?|How can I {u}?", s), fill(rng, "You need {x} to {u}.|To {u} you need {x}.", s), fill(rng, "To {u} you need {x}.", s)
    return fill(rng, "What is {x} for?|What do you do with {x}?|What can you do with {x}?|Why do we need {x}?", s), fill(rng, "With {x} you can {u}.|You use {x} to {u}.", s), fill(rng, "With {x} you can {u}.|{X} helps you to {u}.", s)


def opposite(rng):
    a, b = rng.choice(world.OPPOSITES)
    if rng.random() < 0.5 and (a, b) not in (("light", "dark"), ("heavy", "light")) and b not in ("light", "short", "old", "right"):
        a, b = b, a
    return (fill(rng, f"What is the opposite of {a}?|Tell me the opposite of {a}.|Give me the opposite of {a}."),
            fill(rng, f"The opposite of {a} is {b}."), fill(rng, f"The opposite of {a} is {b}.|If it is not {a}, it may be {b}." if b in ("cold", "small", "dry", "clean", "wet", "big", "dirty", "hot") else f"The opposite of {a} is {b}."))


def capital_city(rng):
    land, city, part = rng.choice(world.CAPITALS)
    kind = rng.randrange(4)
    if kind == 0:
        t = f"{city} is the capital of {land}."
        return fill(rng, f"Which country has the capital {city}?|{city} is the capital of which country?"), t, t
    if kind == 1 and land != "Australia":
        t = f"{land} is in {part}."
        return fill(rng, f"Where is {land}?|On which continent is {land}?"), t, t
    t = f"The capital of {land} is {city}."
    return fill(rng, f"What is the capital of {land}?|What is the capital city of {land}?|Tell me the capital of {land}."), t, fill(rng, f"{t}|{city} is the capital of {land}.|{land} is a country in {part}. {t}" if land != "Australia" else t)


def food(rng):
    thing, kind, taste, where = rng.choice(world.FOODS)
    s = {"x": thing, "k": kind, "t": taste, "w": where, "wrong": "vegetable" if kind == "fruit" else "fruit"}
    r = rng.random()
    if r < 0.12:
        few = [f[0] for f in rng.sample([f for f in world.FOODS if f[1] == kind], 3)]
        line = f"{few[0]}, {few[1]} and {few[2]}."
        return f"Name three {kind}s.", capital(line), f"{capital(few[0])}, {few[1]} and {few[2]} are {kind}s."
    q, a, t = rng.choice([
        ("Is {x} a fruit or a vegetable?|What is {x}?", "{X} is a {k}.", "{X} is a {k}.|{X} is a {k}. It tastes {t}."),
        ("Is {x} a {k}?", "Yes, {x} is a {k}.", "{X} is a {k}."), ("Is {x} a {wrong}?", "No, {x} is a {k}.", "{X} is a {k}, not a {wrong}."),
        ("How does {x} taste?|What does {x} taste like?", "{X} tastes {t}.", "{X} tastes {t}."),
        ("Where does {x} grow?", "{X} grows {w}.", "{X} grows {w}.|{X} is a {k} that grows {w}."),
    ])
    return fill(rng, q, s), fill(rng, a, s), fill(rng, t, s)


def job(rng):
    who, does, where = rng.choice(world.JOBS)
    s = {"x": who, "d": does, "w": where}
    on = "on" if where in ("a ship", "a farm", "a boat", "the road", "a building site") else "at" if where == "an airport" else "in"
    if rng.random() < 0.3:
        return fill(rng, "Where does {x} work?", s), fill(rng, "{X} works " + on + " {w}.", s), fill(rng, "{X} works " + on + " {w}.", s)
    if rng.random() < 0.4:
        return fill(rng, "Who {d}?", s), fill(rng, "{X} {d}.", s), fill(rng, "{X} {d}.", s)
    return fill(rng, "What does {x} do?|What is the work of {x}?", s), fill(rng, "{X} {d}.", s), fill(rng, "{X} {d}.|{X} {d} and works " + on + " {w}.", s)


def body(rng):
    part, use, many = rng.choice(world.BODY)
    s = {"x": part, "bare": part[2:] if part.startswith("a ") else part, "u": use}
    with_ = fill(rng, "With our {bare} we {u}.|We use our {bare} to {u}." if "blood" not in use and "digest" not in use else "Our {bare} helps us to {u}." if many == "one" else "Our {bare} help us to {u}.", s)
    return fill(rng, "What do we use our {bare} for?|What do we do with our {bare}?|What is {x} for?" if part.startswith("a ") else "What do we use our {bare} for?|What do we do with our {bare}?|What are {x} for?" if part != "skin" else "What do we use our {bare} for?", s), with_, with_


def science(rng):
    a, b, q, answer = rng.choice(world.SCIENCE)
    return q, fill(rng, answer if rng.random() < 0.8 else b), fill(rng, a if rng.random() < 0.5 else b)


def mix(rng):
    a, b, c = rng.choice(world.MIXES)
    if rng.random() < 0.5:
        a, b = b, a
    return (fill(rng, f"What color do you get from {a} and {b}?|What happens if you mix {a} and {b}?|What do {a} and {b} make?|Mix {a} and {b}. What color is it?"),
            fill(rng, f"{capital(a)} and {b} make {c}.|If you mix {a} and {b}, you get {c}."), fill(rng, f"{capital(a)} and {b} make {c}.|If you mix {a} and {b}, you get {c}."))


def grammar(rng):
    if rng.random() < 0.45:
        verb, past = rng.choice(list(world.PAST.items()))
        return fill(rng, f"What is the past of {verb}?|What is the past tense of {verb}?"), f"The past of {verb} is {past}.", fill(rng, f"The past of {verb} is {past}.|Today I {verb}, yesterday I {past}.")
    if rng.random() < 0.5:
        a, b = rng.choice(world.RHYMES)
        if rng.random() < 0.5:
            a, b = b, a
        return fill(rng, f"What rhymes with {a}?|Tell me a word that rhymes with {a}."), f"{capital(b)} rhymes with {a}.", f"{capital(a)} rhymes with {b}."
    noun = rng.choice(list(world.PLURALS) + [a["name"] for a in world.ANIMALS] + world.OBJECTS)
    return fill(rng, f"What is the plural of {noun}?|What do you say for more than one {noun}?"), f"The plural of {noun} is {world.plural(noun)}.", fill(rng, f"The plural of {noun} is {world.plural(noun)}.|One {noun}, two {world.plural(noun)}.")


def feeling(rng):
    f, when, does = rng.choice(world.FEELINGS)
    s = {"f": f, "w": when, "d": does}
    r = rng.randrange(3)
    if r == 0:
        return fill(rng, "When are we {f}?|When do people feel {f}?|Why are people {f}?", s), fill(rng, "We are {f} when {w}.", s), fill(rng, "We are {f} when {w}.|When {w}, we feel {f}.", s)
    if r == 1:
        return fill(rng, "What do we do when we are {f}?|What do people do when they are {f}?", s), fill(rng, "When we are {f}, we {d}.", s), fill(rng, "When we are {f}, we {d}.", s)
    return fill(rng, "How do we feel when {w}?", s), fill(rng, "When {w}, we feel {f}.", s), fill(rng, "When {w}, we feel {f}.", s)


def weather(rng):
    w, what, take = rng.choice(world.WEATHER)
    s = {"w": w, "what": what, "t": take}
    if rng.random() < 0.5:
        return fill(rng, "What is a {w} day like?|What happens on a {w} day?", s), fill(rng, "On a {w} day, {what}.", s), fill(rng, "On a {w} day, {what}.|When it is {w}, {what}.", s)
    return fill(rng, "What do I need on a {w} day?|What should I take when it is {w}?|It is {w}. What do I need?", s), fill(rng, "On a {w} day you need {t}.", s), fill(rng, "On a {w} day you need {t}.", s)


def define(rng):
    what, meaning = rng.choice(world.DEFINITIONS)
    s = {"x": what, "m": meaning}
    return (fill(rng, "What is {x}?|What does {x} mean?|Can you explain what {x} is?|What is meant by {x}?" if " " in what else "What is {x}?|What does {x} mean?|Explain {x}.", s),
            fill(rng, "{X} is {m}.", s), fill(rng, "{X} is {m}.", s))


def vehicle(rng):
    if rng.random() < 0.4:
        x, part, what = rng.choice(world.INSTRUMENTS)
        s = {"x": x, "p": part, "w": what}
        if rng.random() < 0.4:
            few = [i[0] for i in rng.sample(world.INSTRUMENTS, 3)]
            return "Name three instruments.", capital(f"{few[0]}, {few[1]} and {few[2]}."), capital(f"{few[0]}, {few[1]} and {few[2]} are instruments.")
        return fill(rng, "What is {x}?|Tell me about {x}.", s), fill(rng, "{X} is {w}.", s), fill(rng, "{X} is {w}.", s)
    x, where, has = rng.choice(world.VEHICLES)
    s = {"x": x, "w": where, "h": has}
    verb = "flies" if "air" in where or "space" in where else "goes"
    if rng.random() < 0.2:
        few = [i[0] for i in rng.sample(world.VEHICLES, 3)]
        return "Name three vehicles.", capital(f"{few[0]}, {few[1]} and {few[2]}."), capital(f"{few[0]}, {few[1]} and {few[2]} are vehicles.")
    if rng.random() < 0.5:
        return fill(rng, "Where does {x} go?|Where do you use {x}?", s), fill(rng, "{X} " + verb + " {w}.", s), fill(rng, "{X} " + verb + " {w}.", s)
    return fill(rng, "What does {x} have?|What is special about {x}?", s), fill(rng, "{X} has {h}.", s), fill(rng, "{X} has {h}.|{X} " + verb + " {w} and has {h}.", s)


def planets(rng):
    i, p = rng.randrange(8), world.PLANETS
    order = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
    if rng.random() < 0.3:
        t = "The planets are " + ", ".join(p[:-1]) + " and " + p[-1] + "."
        return fill(rng, "Name the planets.|What are the planets?|Which planets go around the sun?"), t, t
    t = f"{p[i]} is the {order[i]} planet from the sun."
    return fill(rng, f"Which planet is the {order[i]} from the sun?|What is the {order[i]} planet?"), t, t


def sort_numbers(rng):
    few = rng.sample(range(1, 30), rng.randint(3, 5))
    text = ", ".join(map(str, few))
    kind = rng.randrange(3)
    if kind == 0:
        a = ", ".join(map(str, sorted(few))) + "."
        return fill(rng, f"Sort these numbers: {text}.|Put these numbers in order: {text}.|Sort {text}."), a, f"From small to large: {a}"
    best = max(few) if kind == 1 else min(few)
    word = "largest" if kind == 1 else "smallest"
    return fill(rng, f"Which number is the {word}: {text}?|What is the {word} of {text}?"), f"The {word} number is {best}.", f"Of {text} the {word} is {best}."


def odd_one_out(rng):
    (group, items), (_, others) = rng.sample(world.INSTEAD, 2)
    few = rng.sample(items, 3)
    odd = rng.choice(others)
    mixed = few + [odd]
    rng.shuffle(mixed)
    text = ", ".join(mixed)
    return fill(rng, f"Which word does not belong: {text}?|Find the odd one out: {text}."), fill(rng, f"{capital(odd)} does not belong, because the others are {group}."), f"In {text} the word {odd} does not belong."


FACTS = [color, color, color, name_thing_of_color, animal, animal, animal, animal, young, who_does, compare, compare, arithmetic, arithmetic, word_problem,
         numbers, calendar, made_of, tool, opposite, opposite, capital_city, capital_city, food, job, body, science, science, science, mix, grammar, feeling, weather, define, define, define, vehicle, planets, sort_numbers, odd_one_out]


def fact(rng, want_held_out=False):
    """(question, answer, statement)"""
    return compare(rng, True) if want_held_out else rng.choice(FACTS)(rng)


def text(rng, want_held_out=False):
    """A short plain text: one fact, several of one kind, or questions with answers."""
    kind = rng.random()
    if kind < 0.22:
        statement = fact(rng, want_held_out)[2]
        return statement if not statement.startswith("It") else animal_text(rng)
    if kind < 0.36 and not want_held_out:
        return color(rng)[2]
    if kind < 0.5 and not want_held_out:
        return animal_text(rng)
    one = (lambda r: compare(r, True)) if want_held_out else rng.choice(FACTS)
    if kind < 0.75:
        seen = []
        for _ in range(rng.randint(3, 8)):
            s = (one if rng.random() < 0.8 else fact)(rng)[2]
            if s not in seen and not s.startswith("It"):
                seen.append(s)
        return " ".join(seen or [fact(rng)[2]])
    lines = []
    for _ in range(1 if rng.random() < 0.6 else rng.randint(2, 6)):
        q, a, _ = (one if rng.random() < 0.4 else fact)(rng)
        lines.append(("Question: " if kind < 0.88 else "Q: ") + q + ("\nAnswer: " if kind < 0.88 else "\nA: ") + a)
    return "\n".join(lines) if rng.random() < 0.5 else "\n\n".join(lines)
