"""How a story begins and ends, for all schemas."""

WITH_FRIEND = ("[{Hhis} best friend was|{Hhe} had a good friend,] {a:ftrait} {fkind} [named|called] {fname}.|"
               "{H} often played with {a:ftrait} {fkind} [named|called] {fname}.")
HAPPY = ("[{H} was [very happy|so happy|happy and proud|full of joy].|{Name} [smiled|laughed] [with joy|happily|from ear to ear].|"
         "{H} [danced|jumped] [with joy|up and down].]")
THANKS = ('["Thank you[ so much|, {fname}|, my friend|]!" said {h}.|{H} thanked {fhim}[ with all {hhis} heart|].|"You are a true friend," said {h}.]')
FRIENDS = ("[From that day on|Since that day|After that], {name} and {fname} [were the best of friends|were good friends|"
           "played together every day|met {at} every morning].")
HOME = ("[In the evening|When the sun went down|At the end of the day], {h} went home[, tired but happy| with a smile|].|"
        "That night {h} slept [very well|like a stone|deeply] and dreamed of [{place}|{the}|{fname}|a new day].|")


def begin(s, friend=True):
    rng = s.rng
    openings = [
        "[Once upon a time|Once|Long ago|A long time ago], there [was|lived] {a:trait} {kind} [named|called] {name}. [{Hhe} lived {home}.|{Hhis} home was {home}.|Every day {hhe} [walked|played] {at}.]",
        "{Name} was {a:trait} {kind}[ who lived {home}|. {Hhe} lived {home}].",
        "{At} lived {a:trait} {kind} [named|called] {name}. [{Hhis} home was between {see1} and {see2}.|]",
        "{At}, [between|near|not far from] {see1} and {see2}, lived {a:trait} {kind} [named|called] {name}.",
        "There was once {a:trait} {kind} whose name was {name}. [{Hhe} lived {home}.|]",
        "Once upon a time there was {a:trait} {kind}. [{Hhis} name was {name}|The {kind} was called {name}], and {hhe} lived {home}.",
    ]
    trait = TRAIT_LINES.get(s.trait) if rng.random() < 0.45 else None
    return s.say(rng.choice(openings), trait or "", WITH_FRIEND if friend else "")


TRAIT_LINES = {
    "little": "[{Hhe} was so small that nobody noticed {hhim} at first.|{Hhe} was the smallest of all, but {hhis} heart was big.|]",
    "small": "[Everybody else was bigger than {hhim}.|{Hhe} had to look up at everybody.|]",
    "young": "[{Hhe} had still much to learn.|{Hhe} wanted to know everything.|]",
    "brave": "[{Hhe} was [almost never|hardly ever] afraid.|{Hhe} always went first.|When others ran away, {hhe} stayed.|]",
    "shy": "[{Hhe} did not talk much.|When somebody looked at {hhim}, {hhe} looked away.|{Hhe} spoke in a very quiet voice.|]",
    "clever": "[{Hhe} always had a good idea.|{Hhe} could solve any riddle.|{Hhe} liked to think before {hhe} spoke.|]",
    "kind": "[{Hhe} was good to everybody.|{Hhe} liked to help.|Nobody ever heard a bad word from {hhim}.|]",
    "curious": "[{Hhe} asked questions all day long.|{Hhe} looked into every corner.|\"Why?\" was {hhis} favorite word.|]",
    "gentle": "[{Hhe} never hurt anybody.|Even the butterflies were not afraid of {hhim}.|]",
    "quiet": "[{Hhe} liked to listen more than to talk.|One could hardly hear {hhis} steps.|]",
    "cheerful": "[{Hhe} sang every morning.|{Hhe} laughed even when it rained.|]",
    "clumsy": "[{Hhe} often fell over {hhis} own feet.|Whatever {hhe} held, {hhe} dropped.|]",
    "proud": "[{Hhe} held {hhis} head very high.|{Hhe} thought that {hhe} was the best of all.|]",
    "sleepy": "[{Hhe} could sleep [at any time|all day long].|{Hhe} yawned all the time.|]",
    "playful": "[{Hhe} turned everything into a game.|{Hhe} could not sit still.|]",
    "careful": "[{Hhe} always looked twice.|{Hhe} never ran without looking.|]",
    "funny": "[{Hhe} could make everybody laugh.|{Hhe} knew a hundred jokes.|]",
    "patient": "[{Hhe} could wait for a very long time.|{Hhe} never got angry.|]",
    "hungry": "[{Hhe} could eat at any time of the day.|{Hhe} always thought of food.|]",
    "honest": "[{Hhe} never told a lie.|Everybody trusted {hhim}.|]",
    "lonely": "[{Hhe} often sat alone and looked at the sky.|]",
    "old": "[{Hhe} had seen many summers and winters.|{Hhe} knew many stories.|]",
    "friendly": "[{Hhe} said hello to everybody.|{Hhe} had a smile for everyone.|]",
    "busy": "[{Hhe} had something to do at every hour.|{Hhe} worked from morning to evening.|]",
}
