"""More schemas of stories; see stories.py."""

from . import world
from .grammar import article, fill, join_and
from .telling import FRIENDS, HOME, begin


def hide_and_seek(s):
    w = s.rng.sample(world.HIDING, 3)
    s.slots.update(w1=w[0], w2=w[1], w3=w[2], n=world.WORDS[s.rng.choice((10, 20, 5, 12))])
    s.slots["why"] = s.rng.choice(["{f} had to sneeze", "{h} saw a tail move", "{h} heard somebody giggle", "{h} saw two feet", "a bird sat there and sang"])
    s.slots["why"] = fill(s.rng, s.slots["why"], s.slots)
    first = begin(s)
    second = s.say('{Day}, they played hide and seek {at}. "I will count to {n}," said {h}, "and you hide." [{H} closed {hhis} eyes and counted.|{H} put {hhis} hands over {hhis} eyes.] [{F} ran away as quietly as {fhe} could.|]')
    third = s.say('"[I am coming|Here I come]!" called {h}. {Hhe} looked {w1}, but nobody was there. {Hhe} looked {w2}, but there was only [a sleeping cat|an old shoe|a spider]. Then {why}. {H} looked {w3}. "[I have found you|There you are]!" {hhe} cried.')
    fourth = s.say("[{F} laughed.|They both laughed.] \"Now it is my turn to count,\" said {f}. [They played until it was dark.|They played again and again.]", HOME)
    s.who("{a:kind} and {a:fkind} who play hide and seek", "hide and seek", "a game", "{a:kind} who plays with {a:fkind}")
    return [first, second, third, fourth], "game", "Playing together is fun."


def market(s):
    rng = s.rng
    money = rng.randint(8, 20)
    a, b = rng.randint(1, 4), rng.randint(1, 3)
    t = rng.sample(world.TREATS, 2)
    left = money - a - b
    s.slots.update(m=world.WORDS[money], a=world.WORDS[a] + (" coin" if a == 1 else " coins"), b=world.WORDS[b] + (" coin" if b == 1 else " coins"), t1=t[0], t2=t[1], left=world.WORDS[left], half=world.WORDS[left])
    s.slots["lost"] = rng.choice(world.GROWNUPS)
    first = begin(s, friend=False)
    second = s.say("{Day}, {hhis} {mother} gave {h} {m} coins and sent {hhim} to the market. [The market was full of people and colors.|There were so many things to see.|]",
                   "First {hhe} bought {a:t1} for {a}. Then {hhe} bought {a:t2} for {b}. Now {hhe} had {left} coins left.")
    third = s.say("On the way home {hhe} met {a:lost} who was [very sad|looking for something]. \"I have lost my [money|purse],\" said the {lost}. \"How can I [buy bread|feed my children]?\" [{H} looked at {hhis} coins.|{H} thought for a moment.] \"Take my {left} coins,\" {hhe} said.")
    fourth = s.say("At home {hhe} told {hhis} {mother} everything. \"You have come home without money,\" said {hhis} {mother}, \"but [you are rich in kindness|you have done right].\"", "[A kind heart is worth more than coins.|]")
    s.who("{a:kind} who goes to the market", "{a:kind} with {m} coins", "a market", "{a:kind} who helps {a:lost}")
    return [first, second, third, fourth], "kindness", "A kind heart is worth more than coins."


def invitation(s):
    rng = s.rng
    d = rng.randrange(7)
    k = rng.choice((1, 2, 3, 4))
    s.slots.update(d0=world.DAYS[d], d1=world.DAYS[(d + k) % 7], k="one day" if k == 1 else world.WORDS[k] + " days", soup=rng.choice(world.SOUPS))
    bring = rng.choice(["a song", "a big cake", "{a:treat}", "{a:obj}", "a funny story", "a basket of {treats}"])
    s.slots["bring"] = fill(rng, bring, s.slots)
    first = begin(s, friend=False)
    second = s.say("On {d0} a letter came. [{H} opened it at once.|] It said: \"Dear {name}, please come to my [party|house|birthday] on {d1}. Your friend {fname}.\" \"{D1} is in {k}!\" said {h}. [{Hhe} could hardly wait.|{Hhe} was full of joy.]")
    third = s.say("{H} thought about what {hhe} could bring. [\"I will bring {bring},\" {hhe} said.|At last {hhe} chose to bring {bring}.] {Hhe} waited for {k}, and then it was {d1}. {H} washed {hhis} face and went to the house of {f}.")
    fourth = s.say("{Fname} the {fkind} opened the door." if s.friend_kind not in ("boy", "girl") else "{F} opened the door.", '"Welcome, {name}!" {fhe} said. [They ate {soup} and danced.|They played games and ate cake.] [Everybody liked what {h} had brought.|{F} was very happy about {bring}.]', HOME)
    s.who("{a:kind} who gets a letter", "a letter", "a party", "{a:kind} who visits {a:fkind}")
    return [first, second, third, fourth], "party", "It is good to have friends."


def turns(s):
    first = begin(s)
    second = s.say("{Day}, they found {a:obj} {hide}. \"It is mine!\" said {h}. \"No, it is mine!\" said {f}. [Both of them pulled at it.|They shouted at each other.|{H} pulled on one side, and {f} pulled on the other.]",
                   "[Then {the} nearly broke. |]An old {grown} heard them and came near.")
    third = s.say('[The {grown} said|The {grown} looked at them and said], "[Why do you not take turns?|If you break it, nobody has it.]" [They were ashamed.|They looked at each other.] "You can have it in the morning," said {h}, "and I will take it in the afternoon." "[That is fair|Good]," said {f}.')
    fourth = s.say("[So they took turns, and nobody was angry any more.|From then on they took turns.]", "[In the end they played with {the} together, and that was the most fun.|It was much more fun than to fight.]", FRIENDS)
    s.who("{a:kind} and {a:fkind} who [argue|fight] about {a:obj}", "taking turns", "a fight", "{a:kind} and {a:fkind} who find {a:obj}")
    return [first, second, third, fourth], "fairness", "It is better to take turns than to fight."


def trick(s):
    s.set_friend(s.rng.choice([k for k in ("wolf", "tiger", "lion", "crocodile", "snake", "bear") if k != s.hero_kind]), "m")
    lie = s.rng.choice([("I am so thin now. Wait until I have eaten, and I will taste better", "So the {fkind} waited and waited, but {name} did not come back"),
                        ("Before you eat me, let us see who can shout louder", "The {fkind} opened {fhis} mouth to shout, and {name} ran away"),
                        ("There is a much bigger meal in the well", "The {fkind} looked into the well, saw {fhis} own face, and jumped in with a splash"),
                        ("My grandmother is much fatter than I am, and she will come soon", "The {fkind} waited for her all day, but nobody came"),
                        ("Please let me sing one last song", "{Name} sang so loudly that all {hhis} friends came, and the {fkind} ran away")])
    first = begin(s, friend=False)
    second = s.say("{Day}, a big {fkind} jumped out from [behind a rock|the bushes|behind a tree]. \"[I am hungry|I have not eaten for days],\" said the {fkind}. \"I will eat you!\" [{H} was afraid, but {hhe} kept calm.|{H} thought as fast as {hhe} could.]")
    third = s.say("\"" + lie[0] + ",\" said {h}. [The {fkind} thought about it. \"Very well,\" {fhe} said.|\"That is true,\" said the {fkind}.] " + lie[1] + ".")
    fourth = s.say("[{H} ran home as fast as {hhe} could.|Soon {h} was safe at home.]", "[A clever head is better than sharp teeth.|Who keeps calm finds a way.|]", "[{Hhis} {mother} was proud of {hhim}.|]")
    s.who("{a:kind} and a hungry {fkind}", "{a:kind} who tricks {a:fkind}", "{a:kind} and a bad {fkind}", "a clever {kind} who gets away")
    return [first, second, third, fourth], "trick", "A clever head is better than sharp teeth."


def wounded(s):
    kinds = [k for k in ("sparrow", "robin", "owl", "crow", "swan", "butterfly", "duck", "rabbit", "hedgehog", "squirrel") if k != s.hero_kind]
    s.set_friend(s.rng.choice(kinds))
    part = "wing" if s.friend_kind in ("sparrow", "robin", "owl", "crow", "swan", "butterfly", "duck") else "leg"
    s.slots.update(part=part, do="fly" if part == "wing" and s.friend_kind != "duck" else "walk", food=world.ANIMAL[s.friend_kind]["food"], days=s.rng.choice(["three days", "a week", "two weeks", "ten days"]))
    first = begin(s, friend=False)
    second = s.say("{Day}, {h} found {a:fkind} {hide}. \"[My {part} hurts|I have hurt my {part}], and I cannot {do},\" said the {fkind}. \"What is your name?\" asked {h}. \"My name is {fname}.\"")
    third = s.say("{H} carried {fname} home, [very gently|as carefully as {hhe} could]. {Hhe} made a soft bed in a box and put a [bandage|cloth] around the {part}. Every day {hhe} brought {fhim} {food}. [\"You are very kind,\" said {f}.|In the evening they told each other stories.]")
    fourth = s.say("After {days} the {part} was well, and {fname} could {do} again. [{H} was happy, but also a little sad.|\"Now you must go home,\" said {h}.] \"I will never forget you,\" said {f}. [Every spring {fhe} came back to visit {hhim}.|And {fhe} came back every day to say hello.]")
    s.who("{a:kind} who finds a hurt {fkind}", "a hurt {fkind}", "{a:fkind} with a hurt {part}", "{a:kind} who helps {a:fkind}")
    return [first, second, third, fourth], "care", "Who helps others finds friends."


def lost_way(s):
    sign = s.rng.choice([("the sun, which sets in the west", "evening", "{Hhis} home lay in the west, and so {hhe} walked toward the sun"), ("the bright star that shows the north", "night", "{Hhis} home lay in the north, and so {hhe} followed the star"),
                         ("the little stream, which flows to the village", "day", "So {hhe} followed the water"), ("the smoke that rose from a chimney", "evening", "So {hhe} walked toward the smoke"), ("{hhis} own steps in the snow", "day", "So {hhe} followed {hhis} steps back"),
                         ("the sound of the bell", "evening", "So {hhe} followed the sound")])
    s.slots["sign"] = fill(s.rng, sign[0], s.slots)
    s.slots["path"] = s.rng.choice(["a butterfly", "a rabbit track", "a strange light", "a beautiful song", "the smell of flowers"])
    first = begin(s, friend=False)
    second = s.say("{Day}, {h} followed {path} and went too far. [Everything looked strange.|When {hhe} looked around, {hhe} did not know where {hhe} was.] \"[I am lost|Which way is home]!\" {hhe} said. [{Hhe} wanted to cry, but crying does not show the way.|First {hhe} was afraid.|]")
    third = s.say("[{H} sat down and thought.|\"Stay calm and think,\" {hhe} told {hself}.] Then {hhe} remembered what {hhis} {mother} had said: \"If you are lost, look for {sign}.\" " + sign[2] + ". [{Hhe} walked and walked.|It was a long way.]")
    fourth = s.say("[At last {hhe} saw the light in the window.|At last {hhe} saw {hhis} home.] {Hhis} {mother} stood at the door and [took {hhim} in the arms|gave {hhim} warm soup]. [\"I was so worried,\" {mhe} said.|\"You have found the way all alone!\" {mhe} said.]", "[Who stays calm finds the way.|]")
    s.who("{a:kind} who [loses the way|gets lost|is lost]", "{a:kind} who follows {path}", "finding the way home")
    return [first, second, third, fourth], "way", "Who stays calm finds the way."


def band(s):
    rng = s.rng
    tools = rng.sample(["a drum", "a flute", "a trumpet", "a violin", "a guitar", "a bell", "a whistle", "a harp"], 3)
    third_kind = rng.choice([k for k in ("frog", "cat", "owl", "dog", "goat", "pig", "bear", "cricket") if k not in (s.hero_kind, s.friend_kind)])
    s.slots.update(i1=tools[0], i2=tools[1], i3=tools[2], k3=third_kind, i1n=tools[0][2:], i2n=tools[1][2:], i3n=tools[2][2:])
    first = begin(s)
    second = s.say("{H} had {i1}, {f} had {i2}, and a {k3} had {i3}. " if third_kind != "owl" else "{H} had {i1}, {f} had {i2}, and an owl had {i3}.", "{Day}, they all played {at}, but everybody played something else. [It sounded terrible!|What a noise! The birds flew away.]", '["I am the loudest," said the {k3}.|"My {i1n} is the best," said {h}.|]')
    third = s.say('"[Stop|Wait]!" said {f}. "We must listen to each other." [So they tried again.|They counted to three and began again.] First the {i1n} played alone. Then the {i2n} came in, and then the {i3n}. [Now it was real music!|Now it sounded beautiful.]')
    fourth = s.say("[Everybody {at} came to listen and to dance.|The birds came back and sang with them.]", "[Music is best when we listen to each other.|They called themselves the band of {place}.]", FRIENDS.replace("{name} and {fname}", "the three"))
    s.who("{a:kind} who plays {i1}", "a band", "music", "{a:kind} and {a:fkind} who make music", "{i1}")
    return [first, second, third, fourth], "music", "Listen to each other."


def why_question(s):
    rng = s.rng
    a, b, q, ans = rng.choice([f for f in world.SCIENCE if f[2].startswith(("Why", "What", "Where", "How", "When", "Who"))])
    s.slots.update(q=q, ans=ans, a=a)
    first = begin(s, friend=False)
    second = s.say('{Day}, {h} [walked with|sat next to] {hhis} {mother} {at}. [They looked at {see1}.|] "{q}" asked {h}.', '["That is a good question," said {hhis} {mother}.|{Hhis} {mother} smiled.|{Hhis} {mother} thought for a moment.]')
    third = s.say('"{ans}"', '["Now I understand," said {h}.|"I did not know that," said {h}.|{H} thought about it for a long time.|"And how do you know that?" asked {h}. "I asked my own {mother} when I was small," {mhe} said.]')
    fourth = s.say("[The next day {h} told all {hhis} friends: \"{a}\"|{H} wrote it down in {hhis} little book.]", "[Who asks questions learns much.|From that day on {h} asked a new question every evening.]")
    s.who("{a:kind} who asks a question", "{a:kind} who wants to know everything", "a question", "{a:kind} and {hhis} {mother}")
    return [first, second, third, fourth], "question", "Who asks questions learns much."


def guess_animal(s):
    rng = s.rng
    row = rng.choice([a for a in world.ANIMALS if a["name"] != s.hero_kind and a["sound"] != "make no sound"])
    wrong = rng.choice([a["name"] for a in world.ANIMALS if a["class"] == row["class"] and a is not row] or ["cat"])
    s.slots.update(color2=row["color"], food=row["food"], home=s.slots["home"], den=world.in_home(row), skill=row["skill"], ans=row["name"], wrong=wrong, cls=row["class"])
    first = begin(s)
    second = s.say('{Day}, they played a guessing game. "I think of an animal," said {f}. "It is {a:cls}, and it is {color2}. What is it?"', '"Is it {a:wrong}?" asked {h}. "No," said {f}. "It lives {den} and eats {food}."')
    third = s.say('"[Give me one more hint|Tell me more]," said {h}. "It can {skill}," said {f}. [{H} thought hard.|Then {h} jumped up.] "It is {a:ans}!" "[Right|Yes]!" said {f}.')
    fourth = s.say("[\"Now it is my turn,\" said {h}.|{H} was proud.]", "[They played until the stars came out.|]", FRIENDS)
    s.who("a guessing game", "{a:kind} who guesses", "{a:kind} and {a:fkind} who play a game", "a riddle")
    return [first, second, third, fourth], "game", "Thinking is fun."


def picnic(s):
    rng = s.rng
    foods = rng.sample(["bread", "cheese", "apples", "cookies", "pears", "eggs", "nuts", "cake", "berries", "honey", "lemonade", "carrots"], 4)
    s.slots.update(foods=join_and(foods), f1=foods[0], f2=foods[1], thief=rng.choice([k for k in ("squirrel", "crow", "goat", "mouse", "dog", "monkey") if k not in (s.hero_kind, s.friend_kind)]), stolen=foods[2])
    first = begin(s)
    second = s.say("{Day}, {name} and {fname} went on a picnic. {H} packed {foods} into a basket. [They spread a blanket {at}.|They found a nice place {at}, near {see1}.]", "[First they ate the {f1}, then the {f2}.|They began with the {f1}.]")
    third = s.say("When they [looked away|played ball for a while], {a:thief} came and took the {stolen}. \"Stop!\" cried {f}. [The {thief} ran away.|The {thief} looked ashamed.] \"[Wait|Do not be angry],\" said {h}. \"Perhaps the {thief} is hungry.\" {Hhe} called, \"Come back and eat with us!\"")
    fourth = s.say("So the {thief} came back, and they all ate together. [There was enough for everybody.|It was the best picnic ever.]", "[It is better to ask than to steal.|Who asks gets more than who steals.|]", HOME)
    s.who("a picnic", "{a:kind} who goes on a picnic", "{a:kind}, {a:fkind} and {a:thief}", "{a:thief} who steals food")
    return [first, second, third, fourth], "picnic", "It is better to ask than to steal."


def bridge(s):
    first = begin(s, friend=False)
    s.slots["goal"] = s.rng.choice(["the market", "school", "the mill", "{hhis} grandmother", "the meadow"])
    s.slots["goal"] = fill(s.rng, s.slots["goal"], s.slots)
    second = s.say("{Day}, {h} wanted to cross a narrow bridge to go to {goal}. In the middle of the bridge {hhe} met {a:ftrait} {fkind} named {fname} who came from the other side. \"[Let me pass|Go back],\" said {h}. \"No, you go back,\" said {f}. [Nobody wanted to go back.|They stood there for an hour.]")
    third = s.say("[The bridge began to shake.|Dark clouds came, and it began to rain.] \"If we both stay here, nobody will get home,\" said {h}. \"I will go back and let you pass.\" [{F} was surprised.|{F} blushed.] \"Thank you,\" {fhe} said. \"Next time I will wait for you.\"")
    fourth = s.say("{H} went back, {f} crossed the bridge, and then {h} crossed it too. [It took only a minute.|Nobody fell into the water.]", "[Who gives way gets further.|It is no shame to give way.]")
    s.who("{a:kind} and {a:fkind} on a bridge", "a bridge", "{a:kind} who gives way", "being polite")
    return [first, second, third, fourth], "politeness", "Who gives way gets further."


def contest(s):
    rng = s.rng
    jobs = rng.sample([("jump", "jumped over a log", "far"), ("sing", "sang a song", "beautifully"), ("run", "ran around the pond", "fast"), ("climb", "climbed a tree", "high"), ("dance", "danced on one foot", "well"), ("whistle", "whistled a tune", "loudly")], 2)
    s.slots.update(v1=jobs[0][0], d1=jobs[0][1], w1=jobs[0][2], v2=jobs[1][0], d2=jobs[1][1], w2=jobs[1][2], prize=article(rng.choice(world.THING_COLORS) + " ribbon"))
    first = begin(s)
    second = s.say("{Day}, there was a contest {at}. [Everybody wanted to win {prize}.|The prize was {prize}.] {H} could {v1} very {w1}, and {f} could {v2} very {w2}. [\"I will win,\" said {h}.|\"I hope to win,\" said {f}.]")
    third = s.say("First it was the turn of {h}, and {hhe} {d1}. [Everybody clapped.|The others cheered.] Then it was the turn of {f}, and {fhe} {d2}. [Everybody clapped again.|The others cheered even more.] [The judge, an old {grown}, thought for a long time.|]")
    fourth = s.say("\"[You are both the best|Nobody is better than the other],\" said the {grown}, and cut the ribbon into two parts. [{H} and {f} laughed and shared the prize.|\"That is fair,\" they said.]", "[Everybody is good at something else.|]", FRIENDS)
    s.who("a contest", "{a:kind} who can {v1} very {w1}", "{a:kind} and {a:fkind} in a contest", "{a:kind} who wants to win")
    return [first, second, third, fourth], "contest", "Everybody is good at something else."


def stars(s):
    n = s.rng.choice(["a bear", "a spoon", "a swan", "a boat", "a crown", "a fox", "a kite"])
    s.slots.update(shape=n, sci=s.rng.choice(["The sun is a star too. It is only much nearer", "The moon has no light of its own. It reflects the sun", "The stars are there by day too, but the sun is too bright to see them", "The stars are very far away. That is why they look so small", "The earth turns around itself once a day. That is why the stars seem to move"]))
    first = begin(s)
    second = s.say("One clear night, {name} and {fname} lay {at} and looked at the sky. [There were more stars than they could count.|The moon was round and white.] \"[Look, those stars look like {shape}!|Do you see {shape} up there?]\" said {f}.")
    third = s.say('"[What are the stars?|Tell me about the stars!]" said {h}. "{sci}," said {f}. [{H} had never heard that before.|"How do you know so much?" asked {h}. "I read it in a book," said {f}.]')
    fourth = s.say("[Then a star fell, and both made a wish.|A cool wind blew, and they moved closer together.]", "[They were quiet for a long time.|\"Good night, stars,\" said {h}.]", "[It is good to look at the sky with a friend.|]")
    s.who("the stars", "{a:kind} and {a:fkind} who look at the stars", "the night sky", "{a:kind} at night")
    return [first, second, third, fourth], "stars", "The world is full of wonders."


def helper_day(s):
    """A chain of small deeds; each of those who were helped comes back in the same order."""
    rng = s.rng
    kinds = rng.sample([k for k in ("mouse", "duck", "hen", "frog", "goat", "owl", "snail", "rabbit", "bee", "sheep") if k != s.hero_kind], 3)
    deeds = rng.sample([("whose house had lost its roof", "mended the roof", "brought a warm blanket"), ("who could not find the way", "showed the way", "brought a map"), ("who was very thirsty", "brought fresh water", "brought a jug of juice"), ("who carried a heavy sack", "carried the sack", "brought a bag of nuts"),
                        ("whose foot was stuck", "pulled out the foot", "brought a pair of boots"), ("who had lost a key", "found the key in the grass", "brought a little lamp"), ("who was cold", "made a small fire", "brought a wool scarf")], 3)
    for i in range(3):
        s.slots.update({f"k{i}": kinds[i], f"p{i}": deeds[i][0], f"d{i}": deeds[i][1], f"b{i}": deeds[i][2]})
    first = begin(s, friend=False)
    second = s.say("{Day}, {h} went for a walk. First {hhe} met {a:k0} {p0}. {H} stopped and {d0}. Then {hhe} met {a:k1} {p1}. {H} stopped and {d1}. At last {hhe} met {a:k2} {p2}. {H} stopped and {d2}.")
    third = s.say("[When {hhe} came home, it was late, and {hhe} was very tired.|In the night {hhe} caught a cold and had to stay in bed.] [Then there was a knock at the door.|The next day somebody knocked at the door.] There stood the {k0} and {b0}. Then came the {k1} and {b1}. And then came the {k2} and {b2}.")
    fourth = s.say('"[You helped us, and now we help you|Thank you for your help]," they said. {Name} was very happy.', "[Good deeds come back.|Who gives gets much back.]")
    s.who("{a:kind} who helps everybody", "good deeds", "{a:kind}, {a:k0}, {a:k1} and {a:k2}", "{a:kind} who goes for a walk")
    return [first, second, third, fourth], "helping", "Good deeds come back."


MORE = [hide_and_seek, market, invitation, turns, trick, wounded, lost_way, band, why_question, why_question, guess_animal, picnic, bridge, contest, stars, helper_day]
