"""Stories. Each schema keeps its world consistent: what is lost is found, who can fly fetches the kite, sums add up."""

from . import world
from .grammar import article, fill, join_and
from .more_stories import MORE
from .scene import Scene
from .telling import FRIENDS, HAPPY, HOME, THANKS, begin

def lost(s):
    s.slots["clue"] = s.rng.choice(["a small footprint", "a bit of string", "a trail of crumbs", "a few feathers", "a muddy track"])
    where = s.rng.sample(world.HIDING, 3)
    s.slots["w1"], s.slots["w2"], s.slots["w3"] = where
    first = begin(s)
    second = s.say(
        "[{Name} had {a:obj} that {hhe} loved very much.|The thing {h} loved most was {hhis} {obj}.|{Hhis} {mother} had given {hhim} {a:obj}, and {hhe} took it everywhere.]",
        "{Day}, [{the} was gone|{h} could not find {the}|{the} was not in its place].",
        "[{H} was very sad.|{H} began to cry.|{Hhe} felt sad and worried.|]",
        '["Where is my {thing}?" {hhe} [asked|cried].|"I have lost my {thing}," {hhe} said.|"Oh no, my {obj} is lost!" {hhe} cried.]',
    )
    third = s.say(
        '["Do not worry," said {f}. "[We will find it together|I will help you|Let us look for it together]."|"I will help you look," said {f}.|{F} said, "Let us think. Where did you have it last?"]',
        "[First they looked {w1}, but {the} was not there.|They looked {w1}, but they found only [dust|dry leaves|an old stick].]",
        "[Then they looked {w2}, but it was not there either.|Next they looked {w2}. There was nothing but [a sleepy beetle|a cold wind|a few stones].|Then {f} saw {clue} on the ground, and they followed it.]",
        "[At last|Finally|In the end], they [looked|searched] {w3}[, and there it was|. There was {the}]!",
    )
    fourth = s.say(HAPPY, THANKS, "[From then on, {h} always put {the} back in its place.|{H} held {the} tight and never lost it again.|{Name} let {fname} play with {the} all day.|]", FRIENDS)
    s.who("{a:kind} who [lost|has lost|cannot find] {hhis} {obj}", "{a:obj} that was lost", "a lost {thing}")
    return [first, second, third, fourth], "lost", "[A lost thing is easier to find with a friend.|Friends help each other.]"


def stuck(s):
    skill, trouble, how = s.rng.choice([
        ("fly", "the wind [blew|carried] {the} [up into|to the top of] a tall tree", "{F} flew up [to the top|into the branches] and [brought|carried] {the} down"),
        ("climb", "{the} [got stuck|landed] high in a tree", "{F} climbed up the tree and [threw|brought] {the} down"),
        ("swim", "{the} fell into the [deep|cold] water", "{F} [jumped into the water|dived in] and swam back with {the}"),
        ("dig", "{the} [fell|rolled] into a deep hole", "{F} dug and dug until {fhe} could [reach|pull out] {the}"),
        ("lift", "a heavy log rolled over {the}", "{F} lifted the heavy log, and {the} was free"),
        ("glow", "{the} fell into a dark hollow where nobody could see it", "{F} flew into the hollow and glowed, and in the light {h} could see {the} and take it"),
        ("reach", "the wind carried {the} to the top of a tall tree", "{F} stretched {fhis} long neck and took {the} from the top of the tree"),
    ])
    s.helper(skill)
    why = {"fly": "cannot fly", "climb": "cannot climb so high", "swim": "cannot swim", "dig": "cannot dig", "lift": "am not strong enough",
           "glow": "cannot see in the dark", "reach": "am too small"}[skill]
    can = {"fly": "I can fly", "climb": "I can climb very well", "swim": "I can swim very well", "dig": "I can dig very fast",
           "lift": "I am very strong", "glow": "I can glow in the dark", "reach": "I have a very long neck"}[skill]
    s.slots["why"], s.slots["can"] = why, can
    first = begin(s, friend=False)
    second = s.say(
        "{Day}, {h} was playing with {a:obj} {at}.|{Day}, {h} took {hhis} {obj} and went out to play.",
        "[Suddenly|But then|All at once], " + trouble + ".",
        "[{H} tried to get it back, but {hhe} could not.|{Hhe} tried once, {hhe} tried twice, but it was no use.|{H} did not know what to do.]",
        '["I {why}," {hhe} said [sadly|with a sigh].|]',
    )
    s.slots["met"] = fill(s.rng, "[Just then|Soon|After a while], {a:ftrait} {fkind} [named|called] {fname} came by.", s.slots)
    third = s.say(
        "{met}",
        '["What is wrong?" asked {f}.|"Why are you sad?" {f} asked.|"Can I help you?" said {f}.]',
        '["My {thing} is [lost|gone]," said {h}[, and told {fhim} everything|]. "And I {why}."|{H} told {fhim} what had happened.|"Please help me to get my {thing} back," said {h}.]',
        '["That is easy," said {f}. "{can}."|"I can help you," said {f}. "{can}."|"Do not cry," said {f}. "{can}."]',
        how + ".",
    )
    fourth = s.say(THANKS, "[To say thank you, {h} gave {fhim} {a:treat}.|They shared {a:treat} and played until the evening.|]", FRIENDS,
                   "[Everybody is good at something.|What one cannot do, another can.|]")
    s.who("{a:kind} who needs help", "{a:kind} and {a:fkind} who helps", "{a:kind} and {hhis} {obj}")
    return [first, second, third, fourth], "stuck", "Everybody is good at something."


def fear(s):
    what, why, cure = s.rng.choice([
        ("the dark", "in the dark {hhe} could not see anything", ["{F} showed {hhim} the stars, which shine only when it is dark", "{F} lit a small lamp, and they saw that the room was the same as by day"]),
        ("thunder", "it was so loud", ["{F} told {hhim} to count from the lightning to the thunder, because that shows how far away it is", "{F} said that thunder is only a sound and cannot hurt anybody"]),
        ("deep water", "{hhe} could not see the ground", ["{F} took {hhim} to a place where the water was shallow, and they went in step by step", "{F} held {hhim} by the hand until {hhe} could float"]),
        ("high places", "the ground was so far away", ["{F} told {hhim} to look at the sky and not at the ground", "they climbed only a little higher every day"]),
        ("big dogs", "they barked so loudly", ["{F} showed {hhim} a big dog that was gentle and wagged its tail", "{F} taught {hhim} to stand still and let the dog smell {hhis} hand"]),
        ("the wind", "it howled around the house", ["{F} gave {hhim} a kite, and the wind lifted it high into the sky", "{F} said that the wind only wants to play with the leaves"]),
        ("strangers", "{hhe} did not know what to say", ["{F} told {hhim} to begin with a smile and a hello", "{F} went with {hhim} and said hello first"]),
    ])
    s.slots["what"] = what
    first = s.say(begin(s, friend=False), "[{H} was afraid of {what}, because " + why + ".|There was only one thing that {h} was afraid of: {what}. " + "{Hhe} said that " + why + ".]")
    second = s.say(
        "{Day}, [{h} sat alone and trembled|{h} did not want to leave the house|{h} hid {hide}].",
        "[Then|Soon] {hhis} friend {fname} the {fkind} came to see {hhim}." if s.friend_kind not in ("boy", "girl") else "[Then|Soon] {hhis} friend {fname} came to see {hhim}.",
        '["What is the matter?" asked {f}. "I am afraid of {what}," said {h}.|"I am afraid of {what}," {h} said in a small voice.]',
        '["I was afraid of {what} too," said {f}[. "Let me show you something."|, "but not any more."]|"That is nothing to be ashamed of," said {f}. "Come with me."]',
    )
    third = s.say(s.rng.choice(cure) + ".", "[At first {h} was still afraid.|It was hard at first.|{H} took a deep breath.|]",
                  "[But little by little {hhe} felt better.|Then {hhe} felt {hhis} heart grow calm.|After a while {hhe} was not so afraid any more.]")
    fourth = s.say("[Since that day|From then on], {name} was [not afraid of {what} any more|much braver].",
                   "[To be brave does not mean to have no fear. It means to go on although you are afraid.|{F} was proud of {hhim}.|\"You are very brave,\" said {f}.]", HOME)
    s.who("{a:kind} who [is|was] afraid of {what}", "{a:kind} who fears {what}", "being afraid of {what}")
    text = [first, second, third, fourth]
    return [t[:1].upper() + t[1:] for t in text], "fear", "You can be afraid and still be brave."


def share(s):
    half = s.rng.choice((1, 2, 3, 4, 5, 6))
    many = 2 * half
    one, two = s.slots["treat"], s.slots["treats"]
    s.slots["many"] = world.WORDS[many]
    s.slots["half"] = world.WORDS[half]
    s.slots["halft"] = one if half == 1 else two
    first = begin(s)
    second = s.say(
        "{Day}, {h} had {many} {treats}.|{Day}, {hhis} {mother} gave {h} {many} {treats}.|{Day}, {h} found {many} {treats} in a basket.",
        '["They are all mine," said {h}.|{H} wanted to keep them all.|{Hhe} hid them {hide}, because {hhe} did not want to share.|{Hhe} was very hungry.]',
        "Then {f} came by. [{F} had nothing to eat.|{F} looked tired and hungry.|\"I am so hungry,\" said {f}.]",
    )
    third = s.say(
        "[{H} thought for a while.|{H} looked at {hhis} {treats} and then at {f}.|At first {h} said nothing.]",
        '["We can share," {hhe} said.|"Come and eat with me," said {h}.|"There is enough for both of us," said {h}.]',
        "{H} gave {half} {halft} to {f} and kept {half} {halft} for {hself}.",
        "[They sat down {at} and ate together.|They ate under the trees and told each other stories.]",
    )
    fourth = s.say("[The {treats} tasted better than ever.|It was the best meal {h} had ever had.|{F} smiled and said, \"Thank you.\"|{H} felt warm inside.]",
                   "[The next day, {f} brought {hhim} [a warm bun|some honey|a bowl of soup].|]", FRIENDS, "[Sharing makes two friends happy.|Joy grows when you share it.|]")
    s.who("{a:kind} who shares {hhis} {treats}", "sharing {treats}", "{a:kind} with {many} {treats}")
    return [first, second, third, fourth], "sharing", "Joy grows when you share it."


def lonely(s):
    first = s.say(begin(s, friend=False), "[{H} was new there and had no friends.|{H} had nobody to play with.|Everybody else had a friend, but {h} was alone.]")
    second = s.say(
        "{Day}, {h} [went|walked] [out|along the path] and saw {a:ftrait} {fkind} who was playing with {a:obj}.",
        "[{H} wanted to play too, but {hhe} was too shy to ask.|{Hhe} stood {hide} and watched.|{Hhe} looked at the ground and said nothing.]",
        '[The {fkind} saw {hhim} and [waved|smiled]. "Hello, my name is {fname}. What is your name?"|"Hello," said the {fkind}. "I am {fname}. Who are you?"]',
        '"[My name is|I am] {name}," said {h}[ in a small voice|]. "[May I play with you?|I have nobody to play with.|That is a nice {thing}.]"',
    )
    third = s.say('["Of course!" said {f}.|"Yes, come and play with me," said {f}.|"It is more fun with two," said {f}.]',
                  "[They played with {the} [all day|until it was dark|the whole afternoon].|{F} threw {the} and {h} ran after it.|They took turns with {the} and laughed a lot.]",
                  "[Then they sat near {see1} and [shared {a:treat}|watched the clouds].|When they were tired, they looked at {see2}.|]")
    fourth = s.say("{H} was not lonely any more.", FRIENDS, "[A friend begins with a hello.|It takes only one hello to find a friend.|]")
    s.who("{a:kind} who [has no friends|is lonely|finds a friend|makes a new friend]", "how {a:kind} and {a:fkind} became friends")
    return [first, second, third, fourth], "friendship", "It takes only one hello to find a friend."


def honesty(s):
    item = s.rng.choice(["vase", "cup", "plate", "lamp", "window", "pot", "bowl", "mirror", "clock"])
    col = s.rng.choice(world.THING_COLORS)
    s.slots["item"], s.slots["big"] = item, col + " " + item
    first = begin(s, friend=False)
    second = s.say(
        "{Day}, {h} was playing with {a:obj} in the house.", "[{Hhe} threw {the} too hard|{Hhe} ran too fast|{Hhe} did not look], and [{hhis} {mother}'s {big}|the {big} of {hhis} {mother}] [fell down and broke|broke into many pieces].",
        "[{H} was afraid.|{Hhis} heart beat fast.|{H} did not know what to do.]",
        '["I could say that [the cat|the wind] did it," {hhe} thought.|First {hhe} wanted to hide the pieces {hide}.|]',
    )
    third = s.say(
        "[But {h} did not want to lie.|Then {hhe} took a deep breath.|But {hhe} knew that it is wrong to lie.]",
        '[{Hhe} went to {hhis} {mother} and said, "I broke the {item}. I am sorry."|"I am sorry," {hhe} told {hhis} {mother}. "I have broken your {item}."]',
        '[{Hhis} {mother} was sad about the {item}, but {mhe} was glad too.|{Hhis} {mother} looked at {hhim} for a long time.]',
        '["Thank you for telling me the truth," {mhe} said.|"A {item} can be mended," {mhe} said, "but the truth is worth more than [gold|any {item}]."]',
    )
    fourth = s.say("[Together they [picked up the pieces|mended the {item} with glue].|{H} helped to clean the floor.]",
                   "[After that, {h} always played outside.|From then on, {h} was more careful.]", "[It is good to tell the truth.|The truth made {h} feel light again.|]")
    s.who("{a:kind} who broke {a:item}", "a broken {item}", "{a:kind} who tells the truth", "telling the truth")
    return [first, second, third, fourth], "honesty", "It is always better to tell the truth."


def race(s):
    s.slots["goal"] = s.rng.choice(["the old tree", "the bridge", "the top of the hill", "the well", "the big rock", "the mill"])
    first = begin(s)
    second = s.say('{F} [was very fast and very proud|liked to boast]. "[Nobody is faster than I am|I am the fastest of all]," {fhe} said.',
                   '["Let us have a race," said {h}.|{H} said, "I will race you to {goal}."]', "[Everybody laughed, because {h} was slow.|{F} laughed. \"You are much too slow!\"]")
    third = s.say("[The race began.|They started at sunrise.|Everybody came to watch.]", "{F} ran ahead and was soon far away. [Half way to {goal}, {fhe} lay down to rest and fell asleep.|{Fhe} was so sure to win that {fhe} stopped to [eat {a:treat}|sleep in the shade|talk to the birds].]",
                  "[But {h} did not stop.|{H} went on, step by step.|{H} was tired, but {hhe} kept going.]", "[When {f} [woke up|looked up], it was too late.|{F} jumped up and ran, but it was too late.]",
                  "{H} reached {goal} first!")
    fourth = s.say("[Everybody cheered.|The others clapped their hands.|]", '["You have won," said {f}. "I was too proud."|{F} said, "Well done, {name}. I will not boast again."]',
                   "[Slow and steady wins the race.|It is better to go on than to boast.|]", FRIENDS)
    s.who("a race between {a:kind} and {a:fkind}", "{a:kind} who wins a race", "{a:fkind} who boasts")
    return [first, second, third, fourth], "race", "Slow and steady wins the race."


def garden(s):
    plant, sign = s.rng.choice([("sunflower", "it turned its yellow head to the sun"), ("pumpkin", "a big orange pumpkin lay on the ground"),
                                ("apple tree", "red apples hung from the branches"), ("bean", "long green pods hung from the stalk"),
                                ("rose", "a red flower opened"), ("strawberry plant", "sweet red berries hung between the leaves"), ("tomato plant", "round red tomatoes shone in the sun")])
    s.slots["plant"] = plant
    first = begin(s)
    second = s.say("{Day}, {h} [found|was given|bought] a tiny seed. [\"What will it be?\" {hhe} asked.|{Hhe} wanted to see what it would become.|]",
                   "{Hhe} [made|dug] a small hole in the [ground|soil|earth] and put the seed in it. Then {hhe} gave it water.",
                   "[The next day {hhe} looked, but there was nothing to see.|Every morning {hhe} looked, but nothing happened.]", '["It will never grow," said {h}.|"How long must I wait?" asked {h}.]')
    third = s.say('["A seed needs water, light and time," said {f}.|{F} said, "Be patient. Good things need time."|"Wait a little," said {f}, "and give it water every day."]',
                  "[So {h} gave it water every day.|{H} watered the seed every morning and pulled out the weeds.]",
                  "[After a week|After many days|When the rain had come and gone], a small green leaf came out of the ground. [Then came a second leaf, and a third.|It grew and grew.]",
                  "[In summer|In the end|At last], it was a [fine|beautiful|tall] {plant}, and " + sign + ".")
    fourth = s.say(HAPPY, '["You were right," {hhe} said to {f}. "Good things need time."|{Hhe} showed the {plant} to everybody.|]', "[Patience brings good fruit.|Who waits and works will see things grow.|]")
    s.who("{a:kind} who plants a seed", "{a:kind} who grows {a:plant}", "{a:plant}", "a garden")
    return [first, second, third, fourth], "patience", "Good things need time."


def storm(s):
    s.slots["shelter"] = s.rng.choice(["a small cave", "an old barn", "a hollow tree", "an empty hut", "a dry place under the bridge"])
    first = begin(s)
    second = s.say("{Day}, {name} and {fname} [went for a walk|were playing] {at}. [They looked at {see1} and {see2}.|They were far from home.|]",
                   "[Suddenly the sky turned dark|Dark clouds came over the sky], and [the wind began to blow|it began to rain]. [There was lightning, and then came the thunder.|The rain fell harder and harder.]",
                   "[They were cold and wet.|{F} was afraid.|{H} held {fhim} by the hand.]")
    third = s.say('["We must find a dry place," said {h}.|"Do not be afraid," said {h}. "Follow me."]', "[They ran as fast as they could and|After a while they] found {shelter}. [Inside it was dry and warm.|They crept inside and sat close together.]",
                  "[To pass the time, they sang songs and told stories.|{H} had {a:treat} with {hhim}, and they shared it.|{H} put {hhis} {obj} around {fhim}.]" if s.thing in ("scarf", "blanket", "coat") else "[To pass the time, they sang songs and told stories.|{H} had {a:treat} with {hhim}, and they shared it.]",
                  "[After an hour|When the storm was over|At last], the sun came out again, and [there was a rainbow with seven colors|a bright rainbow stood in the sky].")
    fourth = s.say("[They went home together.|They ran home through the wet grass.]", "[\"A storm is not so bad when you are not alone,\" said {f}.|They never forgot that day.|After every rain comes the sun.]")
    s.who("{a:kind} and {a:fkind} in a storm", "{a:kind} in the rain", "a thunderstorm")
    return [first, second, third, fourth], "storm", "After every rain comes the sun."


def baking(s):
    dish, items = s.rng.choice(world.BAKES)
    missing = s.rng.choice(items)
    have = [i for i in items if i != missing]
    s.slots["dish"], s.slots["missing"], s.slots["have"] = dish, missing, join_and(have)
    s.slots["it"] = "them" if dish.split()[-1].endswith("s") else "it"
    s.slots["was"] = "were" if s.slots["it"] == "them" else "was"
    s.slots["all"] = join_and(items)
    first = begin(s)
    second = s.say("{Day}, {h} wanted to [bake|make] {dish} for [{hhis} {mother}|the birthday of {hhis} {mother}|the party].",
                   "For that {hhe} needed {all}. [In the kitchen {hhe} found {have}|{Hhe} had {have}], but there were no {missing}." if missing.endswith("s") else "For that {hhe} needed {all}. [In the kitchen {hhe} found {have}|{Hhe} had {have}], but there was no {missing}.",
                   '["What shall I do?" said {h}.|"Without {missing} it will not work," {hhe} said.]')
    third = s.say('[{Hhe} went to {f} and asked, "Do you have some {missing}?"|{H} knocked at the door of {f}. "Can you give me some {missing}?"]',
                  '["Yes, I do," said {f}. "Take as much as you need."|"I have plenty of {missing}," said {f}. "May I help you?"]',
                  "[They mixed everything in a big bowl|Together they mixed the {all}] and put {it} into the hot [oven|pan].", "[Soon a sweet smell filled the house.|After a while the whole house smelled sweet.]")
    fourth = s.say("{Dish} {was} ready at last, and everybody wanted to taste {it}.",
                   "[{Hhis} {mother} was very happy.|{H} gave the first piece to {f}.]", "[Work is light when friends help.|A good neighbor is worth more than gold.|]", HOME)
    s.who("{a:kind} who [bakes|makes] {dish}", "{a:kind} who likes to bake", "baking {dish}")
    return [first, second, third, fourth], "baking", "Work is light when friends help."


def noise(s):
    sound, guess, truth, act = s.rng.choice([
        ("a knocking sound", "a giant who knocks at the door", "a woodpecker at an old tree", "The bird looked at them and flew away"),
        ("a strange song", "a ghost", "the wind in an empty bottle", "They took the bottle out, and the song stopped"),
        ("a soft crying", "a monster", "a kitten that had lost its mother", "They took it home and gave it warm milk"),
        ("a loud splash", "a sea monster", "a big frog that jumped into the water", "The frog said croak and swam away"),
        ("a deep growl", "a lion", "an old man who slept and snored", "They laughed quietly and tiptoed away"),
        ("a quick tapping", "somebody with a secret", "the rain that dripped into a pot", "They emptied the pot, and it was quiet again"),
        ("a rustling", "a snake", "a hedgehog in the dry leaves", "The hedgehog rolled into a ball and then walked on"),
        ("a long howl", "a wolf", "a dog who wanted to go inside", "They opened the door, and the dog wagged its tail"),
    ])
    s.slots["sound"], s.slots["guess"], s.slots["truth"] = sound, guess, truth
    first = begin(s)
    second = s.say("[One night|Late one evening|One dark evening], {h} heard {sound}. [It came from outside.|It came again and again.|{H} could not sleep.]",
                   '["That must be {guess}!" {hhe} thought.|"What if it is {guess}?" {hhe} whispered.]', "[{Hhe} pulled the blanket over {hhis} head.|{Hhe} trembled.|]")
    third = s.say("[{Hhe} ran to {f} and told {fhim} about it.|{Hhe} woke up {f}.]", '["Let us go and look," said {f}[. "Then we will know."|.]|"We will only know if we look," said {f}.]',
                  "[They took a lantern and went [outside|into the dark].|Step by step they followed the sound.]", "[Then they saw it|At last they found it]: it was only {truth}!")
    fourth = s.say(act + ".", "[{H} laughed.|They both laughed.] \"[I was afraid of nothing|It was not {guess} at all],\" said {h}.", "[Things are less scary when you look at them.|Who looks closely need not be afraid.|]", "[That night {h} slept very well.|Then they went to bed.|]")
    s.who("{a:kind} who hears {sound}", "{sound} in the night", "a mystery")
    return [first, second, third, fourth], "mystery", "Things are less scary when you look at them."


def gift(s):
    mat, make = s.rng.choice([("wool", "a scarf"), ("wood", "a little boat"), ("paper", "a lantern"), ("clay", "a cup"), ("shells", "a necklace"), ("straw", "a basket"),
                              ("cloth", "a doll"), ("flowers", "a crown"), ("feathers", "a soft pillow"), ("wood", "a flute"), ("wax", "a candle"), ("paper", "a kite")])
    s.slots["mat"], s.slots["make"], s.slots["it2"] = mat, make, make.split()[-1]
    col = s.slots["color"]
    s.slots["made"] = article(col + " " + make.split(" ", 1)[1])
    first = begin(s)
    second = s.say("[The birthday of {f} was near|It was the birthday of {f}], and {h} wanted to give {fhim} something [nice|special].", "But {h} had no money. [\"What can I do?\" {hhe} asked.|{Hhe} looked into {hhis} empty pockets.|]",
                   '["You can make something yourself," said {hhis} {mother}.|Then {hhe} had an idea: {hhe} could make something.]')
    third = s.say("{H} [went out and gathered|found|took] some {mat}. [All day long|For three days|In secret] {hhe} worked, and {hhe} made {made}.", "[It was not perfect, but it was made with love.|At first it went wrong, and {hhe} had to begin again.|]",
                  "[Then {hhe} put it into a box with a ribbon.|]")
    fourth = s.say('[When {f} saw the {it2}, {fhe} was full of joy.|{F} opened the box and saw the {color} {it2}.] "[Did you make it yourself?|It is beautiful!|This is the best gift of all!]" said {f}.',
                   "[A gift made with love is worth more than gold.|It is not the price that makes a gift.|]", "[{F} kept the {it2} for many years.|They ate cake and danced until the evening.]")
    s.who("{a:kind} who makes a gift", "a birthday gift", "{a:kind} who makes {make} of {mat}", "the birthday of {a:fkind}")
    return [first, second, third, fourth], "gift", "A gift made with love is worth more than gold."


def learn(s):
    skill, fail, tip = s.rng.choice([
        ("swim", "sank like a stone", "Move your legs like a frog"), ("ride a bicycle", "fell into the grass", "Look ahead and not at the wheel"),
        ("whistle", "made only air", "Make your mouth small and round"), ("read", "mixed up the letters", "Begin with one letter at a time"),
        ("skate", "fell on the ice", "Bend your knees"), ("play the flute", "made an ugly sound", "Blow very gently"), ("draw a horse", "drew something like a dog", "Begin with the big shapes"),
        ("jump over the brook", "landed in the water", "Run fast and jump at the last moment"), ("dance", "fell over {hhis} own feet", "Listen to the music first"), ("tie a knot", "had only a loose string", "Make a loop and pull the end through"),
        ("sing", "missed every note", "Breathe slowly and listen to yourself"), ("cook soup", "burned the soup", "Keep the fire small"),
    ])
    s.slots["skill"], s.slots["tip"] = skill, tip
    first = s.say(begin(s), "[More than anything, {h} wanted to {skill}.|{H} wished to learn how to {skill}.]")
    second = s.say("{Day}, {hhe} tried for the first time, but {hhe} " + fail + ". [{Hhe} tried again, and it was no better.|The second time was no better.|]",
                   '["I will never learn it," said {h}.|"It is too hard," {hhe} said and sat down.|{H} wanted to give up.]')
    third = s.say('["{tip}," said {f}. "And do not give up."|{F} watched {hhim} and said, "{tip}."|"I could not do it at first either," said {f}. "{tip}."]',
                  "[So {h} tried again, and again, and again.|Every day {h} practiced a little.|{H} listened and tried once more.]", "[After three days|On the third day|After a week|At last], {hhe} could do it!", "[{Hhe} could really {skill}!|]")
    fourth = s.say('["Look at me!" {hhe} cried.|{F} clapped. "I knew that you could do it!"|' + "{H} was very proud.]", "[If you do not give up, you can learn hard things.|Practice makes you better.|Nobody is born a master.|]", HOME)
    s.who("{a:kind} who [wants to|learns to] {skill}", "learning to {skill}")
    return [first, second, third, fourth], "learning", "Do not give up, and you will learn it."


def baby(s):
    rng = s.rng
    animals = [a for a in world.ANIMALS if a["class"] in ("mammal", "bird") and a["name"] not in ("bat", "whale")]
    mother = rng.choice(animals)
    wrong = rng.sample([a for a in animals if a["name"] != mother["name"] and a["baby"] != mother["baby"]], 2)
    s.slots.update(baby=mother["baby"], mom=mother["name"], momcolor=mother["color"], momsound=mother["sound"], w1=wrong[0]["name"], w2=wrong[1]["name"],
                   w1baby=wrong[0]["baby"], w2baby=wrong[1]["baby"], skill=mother["skill"], momhome=mother["home"], food=mother["food"])
    s.slots["bname"] = rng.choice(world.BOYS + world.GIRLS)
    first = s.say("[Once upon a time|One day|One morning], a little {baby} named {bname} woke up and could not find [the|its] mother. \"Where is my mother?\" asked {bname}. [The little {baby} went {at} to look for her.|So the little {baby} began to walk.]")
    second = s.say("First {bname} met {a:w1}. \"Are you my mother?\" \"No,\" said the {w1}. \"My child is {a:w1baby}, and you are {a:baby}.\"",
                   "[Then|Next] {bname} met {a:w2}. \"Are you my mother?\" \"No,\" said the {w2}. \"[My child is {a:w2baby}.|What does your mother look like?]\"",
                   "\"My mother is {momcolor},\" said {bname}. \"[She can {skill}.|She eats {food}.]\"")
    third = s.say('"[Then your mother must be {a:mom}|That sounds like {a:mom}]," said the {w2}. "[Look for her near {momhome}.|I have seen {a:mom} {at}.]"',
                  "[{Bname} ran as fast as the small legs could go.|The little {baby} ran on.]", "[And there she was|There stood a big {mom}]! \"[My dear child|There you are]!\" she [cried|said]. \"[I have looked for you everywhere|Stay close to me now].\"")
    fourth = s.say("[The {mom} and her {baby} were happy.|The little {baby} was safe again.]", "[That night {bname} slept close to the warm mother.|Together they went home to {momhome}.]")
    s.hero_kind, s.name, s.trait = mother["baby"], s.slots["bname"], "little"
    s.friend_kind = mother["name"]
    return [first, second, third, fourth], "family", "There is no place like home."


def favor(s):
    trap, small = s.rng.choice([("a net", "bit through the ropes"), ("a thorny bush", "pulled out the thorns one by one"), ("a deep pit", "found a long branch and let it down"), ("a box with a lock", "found the key {hide} and opened the lock")])
    strong = s.rng.choice(["lion", "bear", "tiger", "wolf", "eagle", "elephant", "horse", "crocodile"])
    if strong == s.hero_kind:
        strong = "dragon"
    s.set_friend(strong, "m" if s.hero_gender == "f" else "f")
    s.slots["trap"] = trap
    first = begin(s, friend=False)
    second = s.say("{Day}, {h} met a [big|strong|mighty] {fkind} [named|called] {fname}. {H} was afraid and said, \"[Please do not hurt me|Please let me go]. [One day I will help you|Perhaps I can help you one day].\"",
                   "[The {fkind} laughed. \"How could somebody like you help me?\"|{F} had to laugh. \"You are so small!\"] But {fhe} let {hhim} go.")
    third = s.say("[Some days later|A week later|Soon after that], {h} heard a [cry|call for help]. {F} was caught in {trap}. [{Fhe} pulled and pulled, but could not get free.|All the strength of the {fkind} was no help.]",
                  '"[Wait|Do not move], I will help you," said {h}. {Hhe} ' + small + ", and {f} was free.")
    fourth = s.say('["You have saved me," said {f}. "I was wrong to laugh."|{F} bowed. "Thank you, {name}. Now I know that small friends can be great friends."]', FRIENDS, "[No kind deed is ever lost.|Even the small can help the great.|]")
    s.who("{a:kind} who saves {a:fkind}", "{a:fkind} in {trap}", "{a:kind} and a big {fkind}")
    return [first, second, third, fourth], "kindness", "Even the small can help the great."


def trade(s):
    rng = s.rng
    things = rng.sample(world.OBJECTS, 4)
    people = rng.sample(world.GROWNUPS, 3)
    if s.thing in things:
        things[things.index(s.thing)] = "basket of eggs"
    for i, t in enumerate(things):
        s.slots[f"t{i}"] = t
    for i, p in enumerate(people):
        s.slots[f"p{i}"] = p
    first = s.say(begin(s, friend=False), "{H} wanted {a:obj}, but {hhe} had only {a:t0}.")
    second = s.say('{Hhe} went to the {p0}. "[Will you give me your {obj}?|I would like to have your {obj}.]" "Yes," said the {p0}, "if you bring me {a:t1}."',
                   'So {h} went to the {p1}. "[Will you give me {a:t1}?|I need {a:t1}.]" "Yes," said the {p1}, "if you bring me {a:t2}."',
                   'So {h} went to the {p2}. "[Will you give me {a:t2}?|I need {a:t2}.]" [The {p2} looked at the {t0}.|] "Yes," said the {p2}, "if you give me your {t0}."')
    third = s.say("{H} gave the {t0} to the {p2} and got the {t2}. {Hhe} gave the {t2} to the {p1} and got the {t1}. {Hhe} gave the {t1} to the {p0}, and at last {hhe} got the {obj}.")
    fourth = s.say("[Everybody had what they wanted.|Now everybody was happy.]", HAPPY, "[Ask kindly, and you will find a way.|]", HOME.replace("{fname}", "a long walk"))
    s.who("{a:kind} who wants {a:obj}", "{a:kind} who trades")
    return [first, second, third, fourth], "trade", "Ask kindly, and you will find a way."


def build(s):
    house, weak, strong, foe = s.rng.choice([("a house", "straw", "stone", "the wind"), ("a sandcastle", "dry sand", "wet sand and stones", "a wave"), ("a bridge", "thin twigs", "strong wood", "the water"),
                                             ("a boat", "paper", "wood", "the rain"), ("a hut", "leaves", "wood and clay", "the storm"), ("a tower", "snow", "brick", "the sun")])
    s.slots.update(house=house, weak=weak, strong=strong, foe=foe, ho=house.split()[-1])
    first = begin(s)
    second = s.say("{Day}, {h} wanted to build {house}. {Hhe} built it of {weak}, because that was quick and easy.", '["That is not strong enough," said {f}.|{F} shook {fhis} head. "It will not last," {fhe} said.|]',
                   "[But {h} did not listen.|]", "[In the night|The next day|Soon] {foe} came and [destroyed it|broke it]. [Nothing was left.|{H} was very sad.]")
    third = s.say('["I will help you," said {f}. "This time we take {strong}."|"Let us build it again," said {f}, "but of {strong}."]', "[They worked for three days.|They carried, and measured, and built.|It took a long time, and it was hard work.]",
                  "When {foe} came again, the new {ho} of {strong} stood firm.")
    fourth = s.say(HAPPY, '["Good work takes time," said {f}.|"Next time I will listen to you," said {h}.|]', "[What is done well lasts long.|Quick work is not always good work.|]")
    s.who("{a:kind} who builds {house}", "{house} of {strong}", "building {house}")
    return [first, second, third, fourth], "building", "What is done well lasts long."


def sick(s):
    s.slots["soup"] = s.rng.choice(world.SOUPS)
    first = begin(s)
    second = s.say("{Day}, {f} did not come to play. {H} waited and waited. [Then {hhe} went to the house of {f}|So {hhe} went to look for {fhim}] and found {fhim} in bed.", '["I am sick," said {f}. "[My head hurts.|I feel so weak.|I am cold.]"|{F} had a cold and could not get up.]')
    third = s.say('["I will take care of you," said {h}.|{H} knew what to do.]', "{Hhe} cooked {soup} and brought {fhim} a [warm blanket|cup of hot tea]. [Then {hhe} sat by the bed and told a story about {place}.|{Hhe} put {a:obj} next to the bed, so that {f} could look at something nice.]",
                  "[{F} ate the {soup} and fell asleep.|\"This {soup} is very good,\" said {f}.]")
    fourth = s.say("[After three days|The next morning|After a week], {f} was well again. [\"You are the best doctor of all,\" {fhe} said.|\"Thank you for your {soup},\" said {f}.]", FRIENDS, "[A good friend is the best medicine.|]")
    s.who("{a:fkind} who is sick", "{a:kind} who cooks {soup}", "{a:kind} who takes care of {a:fkind}", "{soup}")
    return [first, second, third, fourth], "care", "A good friend is the best medicine."


def greed(s):
    first = s.say(begin(s), "{H} had {a:obj}, but [{hhe} always wanted more|that was not enough for {hhim}].")
    second = s.say("{Day}, {h} stood on a bridge and looked into the water. There {hhe} saw [somebody|a {kind}] who held {a:obj} too. [\"I want that one as well!\" {hhe} thought.|\"Then I would have two!\" said {h}.]",
                   "{Hhe} reached for it, [and {hhis} own {thing} fell into the water|but {hhe} let go of {hhis} own {thing}, and it fell into the water]. [Splash!|] The other {thing} was gone too.")
    third = s.say("{H} [sat down and cried|was sad and ashamed]. Then {f} came by and asked what had happened. \"It was only your own picture in the water,\" said {f}. \"[Who wants too much loses all.|Now you have nothing.]\"",
                  '"I was [greedy|foolish]," said {h}.')
    fourth = s.say("[{F} helped {hhim} to find {the} in the shallow water.|The next day {f} gave {hhim} an old {thing}, and {h} was glad about it.]", "From then on {h} was happy with what {hhe} had.")
    s.who("{a:kind} who wants too much", "a greedy {kind}", "being greedy")
    return [first, second, third, fourth], "greed", "Who wants too much loses all."


def treasure(s):
    rng = s.rng
    steps = [rng.randint(2, 12) for _ in range(2)]
    dirs = rng.sample(["north", "south", "east", "west"], 2)
    s.slots.update(n1=world.WORDS[steps[0]], n2=world.WORDS[steps[1]], d1=dirs[0], d2=dirs[1], mark=rng.choice(["the old tree", "the big rock", "the well", "the bridge", "the stone bench", "the gate"]))
    inside = rng.choice(["old coins", "a letter from {hhis} {mother}", "shiny stones", "a {color} {thing}", "a jar of honey", "an old book of stories"])
    first = begin(s)
    second = s.say("{Day}, {h} found an old map {hide}. On the map was written: \"Begin at {mark}. Go {n1} steps to the {d1}. Then go {n2} steps to the {d2}. Dig there.\"", '["A treasure!" cried {h}.|{H} showed the map to {f}.]')
    third = s.say("Together they went to {mark}. They went {n1} steps to the {d1} and counted aloud. Then they went {n2} steps to the {d2}. [There they began to dig.|{H} dug as fast as {hhe} could.]", "[After a while they found a wooden box.|Soon they hit something hard. It was a small box.]", "In the box there was " + inside + ".")
    fourth = s.say("[They shared the treasure.|They laughed and danced around the hole.]", '["The best treasure is a friend who digs with you," said {f}.|"What a day!" said {h}.]', HOME)
    third = third.replace("there was old coins", "there were old coins").replace("there was shiny stones", "there were shiny stones")
    third = third.replace("was a orange", "was an orange")
    s.who("{a:kind} who finds a treasure", "{a:kind} with an old map", "a treasure map")
    return [first, second, third, fourth], "treasure", "The best treasure is a friend."


def paint(s):
    a, b, mix = s.rng.choice(world.MIXES)
    if s.rng.random() < 0.5:
        a, b = b, a
    thing = s.rng.choice(["a house", "a boat", "a door", "a fence", "a chair", "a wagon", "a kite", "a bird", "a flower", "a fish"])
    s.slots.update(c1=a, c2=b, mix=mix, pic=thing, pi=thing.split()[-1])
    first = begin(s)
    second = s.say("{Day}, {h} wanted to paint {pic}. It should be {mix}. But {hhe} had no {mix} paint. {Hhe} had only {c1} paint and {c2} paint.", '["What a pity," said {h}.|"Then I cannot paint it," {hhe} said.]')
    third = s.say('["Wait," said {f}. "[Let us mix the colors|Mix {c1} and {c2}, and see what happens]."|{F} had an idea. "What happens if you mix {c1} and {c2}?"]', "{H} mixed {c1} and {c2}, and the paint turned {mix}! [They could hardly believe it.|It was like magic.|]",
                  "Soon the {pi} was {mix}[ from top to bottom| and shiny|].")
    fourth = s.say("[Everybody came to see the {mix} {pi}.|It was the finest {pi} {at}.]", "[\"{C1} and {c2} make {mix},\" said {h}. \"I will remember that.\"|{H} never forgot that {c1} and {c2} make {mix}.]", FRIENDS)
    s.who("{a:kind} who paints {pic}", "{a:kind} who mixes colors", "a {mix} {pi}" if mix != "orange" else "an orange {pi}")
    return [first, second, third, fourth], "painting", "Two colors make a new one."


def snowman(s):
    first = begin(s)
    second = s.say("[One winter morning|One cold morning], everything was white with snow. {Name} and {fname} ran outside and built a snowman. They gave him a carrot for a nose, two stones for eyes, and {a:obj}." if s.thing in ("hat", "scarf", "button", "coat", "cap", "bow", "ribbon") else
                   "[One winter morning|One cold morning], everything was white with snow. {Name} and {fname} ran outside and built a snowman. They gave him a carrot for a nose, two stones for eyes, and a {color2} hat.".replace("{color2}", s.rng.choice(["red", "blue", "green", "yellow", "black"])),
                   '["Hello, snowman!" said {h}.|"He is our friend," said {f}.]', "They played with him every day.")
    third = s.say("But then the days grew warmer, and the snowman grew smaller. [\"He is melting!\" cried {h}.|{H} was sad and asked why.] \"When it gets warm, snow turns into water,\" said {f}. [One day there was only a puddle.|In the end only the carrot was left.]")
    fourth = s.say('["The water goes into the ground, and the flowers drink it," said {f}. "He will come back as a flower."|"Next winter we will build a new one," said {f}.]', "[In spring a white flower grew in that place.|And so they did, every winter.]", "[{H} smiled again.|Every end is a beginning.|]")
    s.who("{a:kind} who builds a snowman", "a snowman", "winter", "snow")
    return [first, second, third, fourth], "winter", "Every end is a beginning."


def wish(s):
    first = begin(s, friend=False)
    want, got = s.rng.choice([("to fly", "saw the whole land from above, but it was cold up there and nobody was there to talk to"), ("to be very big", "could look over the trees, but {hhis} friends were afraid of {hhim}"),
                              ("to be very small", "could ride on a leaf, but a drop of rain was as big as a house"), ("to be a king", "had a golden chair, but {hhe} had no time to play"),
                              ("to live in the sea", "saw colorful fish, but {hhe} missed the sun"), ("to be rich", "had a house full of gold, but {hhe} could not eat it")])
    s.slots["want"] = want
    second = s.say("[Every night|Often] {h} looked at the stars and wished {want}. {Day}, a star fell from the sky and said, \"I will give you one wish.\" \"I wish {want},\" said {h}.")
    third = s.say("[In the morning|At once] the wish came true. {H} " + got + ". [Soon {hhe} was sad.|That was not what {hhe} had thought.] \"I want to be as I was before,\" said {h}. The star heard {hhim}, and {hhe} was {a:trait} {kind} again.")
    fourth = s.say("[{H} ran home to {hhis} {mother}.|{Hhe} was glad to be home {at}.]", "[It is good to be what you are.|Now {hhe} knew that {hhe} had all {hhe} needed.]")
    s.who("{a:kind} who wants {want}", "{a:kind} with a wish", "a falling star")
    return [first, second, third, fourth], "wish", "It is good to be what you are."


def bedtime(s):
    first = begin(s, friend=False)
    second = s.say("[One night|It was late, and] {h} could not sleep. \"[I am not tired|I cannot sleep],\" {hhe} said to {hhis} {mother}. \"[Count the stars|Think of {place}|Listen to the wind],\" said {hhis} {mother}.",
                   "So {h} [lay still and listened|closed {hhis} eyes]. {Hhe} thought of {see1} and {see2}. [{Hhe} thought of {hhis} {obj}.|]")
    third = s.say("[The moon looked in through the window.|Outside an owl called softly.] [The wind sang a quiet song.|Everything was still.] {Hhis} eyes grew heavy. [\"Good night, moon,\" said {h}.|\"Good night, my dear,\" said {hhis} {mother}.]", "And then {hhe} was asleep.")
    s.who("{a:kind} who cannot sleep", "bedtime", "{a:kind} at bedtime")
    return [first, second, third], "sleep", "Good night."


SCHEMAS = [lost, lost, stuck, stuck, fear, share, share, lonely, honesty, race, garden, storm, baking, noise, gift, learn, baby, favor, trade,
           build, sick, greed, treasure, paint, snowman, wish, bedtime] + MORE


INDOORS = {"school", "the library", "the kitchen", "the attic", "the castle", "the lighthouse"}
OUTDOOR_STORIES = {stuck, race, garden, storm, treasure, snowman, lonely} | {
    schema for schema in MORE if schema.__name__ in ("picnic", "stars", "contest", "wounded", "market", "helper_day", "bridge")}


def held_out(s):
    """Whether this hero never meets this thing in the training text (about one pair in forty)."""
    code = 0
    for char in s.hero_kind + "/" + s.thing:
        code = (code * 31 + ord(char)) % 1000003
    return code % 40 == 7


def story(rng, want_held_out=False):
    """(paragraphs, scene, theme, moral) of a story inside or outside the held-out pairs of hero and thing."""
    while True:
        s = Scene(rng)
        if held_out(s) != want_held_out:
            continue
        schema = rng.choice(SCHEMAS)
        if s.place in INDOORS and schema in OUTDOOR_STORIES:
            continue
        paragraphs, theme, moral = schema(s)
        return paragraphs, s, theme, moral


def title(rng, s):
    return fill(rng, "[The {Kind} and the {T}|{Name} and the {T}|{Name} the {Kind}|The {Trait} {Kind}|A Story about {a:kind}]",
                dict(s.slots, kind=s.hero_kind, name=s.name, trait=s.trait, t=" ".join(w.capitalize() for w in s.slots["obj"].split())))
