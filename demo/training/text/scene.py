"""The world state of one story: who is in it, where it plays, and which thing it is about."""

from . import world
from .grammar import article, fill

CAN = {
    "fly": ["robin", "crow", "sparrow", "owl", "eagle", "parrot", "butterfly", "bat"],
    "climb": ["squirrel", "monkey", "cat", "bear", "goat", "koala"],
    "swim": ["duck", "otter", "frog", "turtle", "beaver", "seal", "swan", "dolphin", "penguin"],
    "dig": ["mole", "badger", "rabbit", "dog"],
    "lift": ["bear", "elephant", "horse", "donkey", "hippo", "cow"],
    "glow": ["firefly"],
    "reach": ["giraffe"],
}
PLAIN = [a["name"] for a in world.ANIMALS if a["name"] not in ("worm", "shark", "salmon", "whale", "octopus", "dolphin")]
CHILDREN = ["boy", "girl"]
ONSETS = "b c d f g h j k l m n p r s t v w z br ch cl dr fl gl gr kr pl pr sh sk sl sp st str th tr tw wh qu".split()
NUCLEI = "a e i o u a e i o u ai ea ee ie oa oo ou y".split()
CODAS = ", , , ,n,r,l,s,t,k,m,p,x,nd,nt,ck,ng,rk,st,ll,ss,mp,sh,ble,tle,ver,ton,ley".replace(" ", "").split(",")
SYLLABLES = "ba be bi bo bu da de di do fa fi fo ga gi go ka ki ko la le li lo lu ma mi mo na ni no pa pi po ra ri ro sa si so ta ti to va vi wo za zi zo".split()
ENDS = ["", "", "n", "k", "l", "m", "p", "r", "x", "t", "bble", "ck", "nk", "mp"]


def made_up_word(rng):
    """A word that nobody knows, so that the model learns to copy."""
    if rng.random() < 0.6:
        parts = [rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS) for _ in range(rng.choice((1, 2, 2, 3)))]
        return ("" if rng.random() < 0.85 else rng.choice("aeiou")) + "".join(parts)
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.choice((1, 2, 2, 3)))) + rng.choice(ENDS)


def made_up_name(rng):
    return made_up_word(rng).capitalize()


class Scene:
    """Slots for the templates; `h*` belongs to the hero, `f*` to the friend, `g*` to a grown-up."""

    def __init__(self, rng, hero=None, friend=None):
        self.rng = rng
        self.slots = {}
        self.asks = []  # what a reader who wants this story may ask for, "about a fox who ..."
        self.hero_gender = rng.choice("mf")
        self.hero_kind = hero or self._kind()
        if self.hero_kind in CHILDREN:
            self.hero_gender = "m" if self.hero_kind == "boy" else "f"
        if self.hero_kind in ("king", "prince", "wizard", "knight", "rooster", "grandfather", "postman", "cowboy"):
            self.hero_gender = "m"
        if self.hero_kind in ("queen", "princess", "fairy", "mermaid", "hen", "cow", "grandmother", "witch", "giantess"):
            self.hero_gender = "f"
        self.name = self._name(self.hero_gender)
        self.trait = rng.choice(world.TRAITS)
        if self.trait == "old" and self.hero_kind in CHILDREN + ["baby", "kitten", "puppy", "student"]:
            self.trait = "cheerful"
        if " " in self.hero_kind and self.trait in ("little", "old", "small"):
            self.trait = "brave"
        self._person("h", self.hero_kind, self.name, self.hero_gender)
        self.friend_gender = ("f" if self.hero_gender == "m" else "m") if rng.random() < 0.7 else rng.choice("mf")
        self.friend_kind = friend or self._other_kind()
        if self.friend_kind in CHILDREN:
            self.friend_gender = "m" if self.friend_kind == "boy" else "f"
        if self.friend_kind in ("hen", "cow"):
            self.friend_gender = "f"
        if self.friend_kind == "rooster":
            self.friend_gender = "m"
        self.set_friend(self.friend_kind, self.friend_gender)
        place = rng.choice(world.PLACES)
        self.place = place[1]
        s = self.slots
        s["trait"], s["kind"], s["name"] = self.trait, self.hero_kind, self.name
        s["ftrait"] = rng.choice([t for t in world.TRAITS if t not in (self.trait, "old" if self.friend_kind in CHILDREN else "")])
        s["at"], s["place"] = place[0] + " " + place[1], place[1]
        s["see1"], s["see2"] = rng.sample(place[2:5], 2)
        color, thing = rng.choice(world.THING_COLORS), rng.choice(world.OBJECTS) if rng.random() < 0.95 else made_up_word(rng)
        self.thing, self.color = thing, color
        s["thing"], s["color"], s["obj"] = thing, color, color + " " + thing
        s["the"] = lambda: "the " + (thing if rng.random() < 0.5 else color + " " + thing)
        s["treat"] = rng.choice(world.TREATS)
        s["treats"] = world.plural(s["treat"])
        s["grown"] = rng.choice(world.GROWNUPS)
        s["hide"] = rng.choice(world.HIDING)
        s["day"] = lambda: fill(rng, "[One|One [sunny|cold|warm|windy|rainy|quiet|bright]] [morning|day|afternoon|evening]")
        s["mother"] = rng.choice(["mother", "father", "grandmother", "grandfather"])
        s["mhe"] = "she" if s["mother"].endswith("mother") else "he"
        s["home"] = self._home()

    def _kind(self):
        r = self.rng.random()
        if r < 0.55:
            return self.rng.choice(PLAIN)
        if r < 0.8:
            return self.rng.choice(CHILDREN)
        if r < 0.91:
            return self.rng.choice(world.FANTASY)
        if r < 0.94:
            return self.rng.choice(world.OBJECTS)
        return made_up_word(self.rng)

    def _other_kind(self):
        for _ in range(20):
            kind = self.rng.choice(PLAIN) if self.rng.random() < 0.75 else self.rng.choice(CHILDREN)
            if kind != self.hero_kind:
                return kind
        return "bear" if self.hero_kind != "bear" else "fox"

    def _name(self, gender, other=None):
        for _ in range(20):
            if self.rng.random() < 0.08:
                name = made_up_name(self.rng)
            else:
                name = self.rng.choice(world.BOYS if gender == "m" else world.GIRLS)
            if name != other:
                return name
        return "Robin"

    def _home(self):
        animal = world.ANIMAL.get(self.hero_kind)
        if animal and self.rng.random() < 0.5:
            return world.in_home(animal) if not animal["home"].startswith("its") else "in a garden"
        return self.slots["at"]

    def _person(self, key, kind, name, gender):
        rng, s = self.rng, self.slots
        s[key] = (lambda: name) if kind in CHILDREN else (lambda: name if rng.random() < 0.6 else "the " + kind)
        s[key + "he"] = "he" if gender == "m" else "she"
        s[key + "him"] = "him" if gender == "m" else "her"
        s[key + "his"] = "his" if gender == "m" else "her"
        s[key + "self"] = "himself" if gender == "m" else "herself"

    def set_friend(self, kind, gender=None):
        """Makes this kind the second person of the story."""
        rng, s = self.rng, self.slots
        gender = gender or rng.choice("mf")
        if kind in ("hen", "cow"):
            gender = "f"
        self.friend_kind, self.friend_gender = kind, gender
        self.friend_name = self._name(gender, self.name)
        self._person("f", kind, self.friend_name, gender)
        s["fkind"], s["fname"] = kind, self.friend_name
        if gender == self.hero_gender:
            s["fhe"] = s["fhim"] = self.friend_name
            s["fhis"] = self.friend_name + "'s"

    def helper(self, skill):
        """Puts somebody into the story who can do this."""
        kinds = [k for k in CAN[skill] if k != self.hero_kind] or CAN[skill]
        self.set_friend(self.rng.choice(kinds))
        self.slots["ftrait"] = self.rng.choice(["kind", "friendly", "old", "young", "clever", "strong", "gentle", "cheerful"])

    def who(self, *templates):
        """Notes how one may ask for this story: `{a:kind} who ...`."""
        self.asks += [fill(self.rng, t, self.slots) for t in templates]

    def say(self, *templates):
        """The templates as one paragraph; empty ones vanish."""
        return " ".join(t for t in (fill(self.rng, t, self.slots).strip() for t in templates) if t)


__all__ = ["Scene", "article", "made_up_word", "made_up_name"]
