"""What is true in the demo model's small world: plain tables, one line for each thing."""


def _table(text, *names):
    rows = []
    for line in text.strip().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        assert len(cells) == len(names), line
        rows.append(dict(zip(names, cells)))
    return rows


def _pairs(text):
    return [tuple(cell.strip() for cell in line.split("|")) for line in text.strip().splitlines()]


ANIMALS = _table(
    """
fox|mammal|orange|a den|the forest|mice and berries|bark|cub|4|40|fur|run fast
bear|mammal|brown|a cave|the forest|fish and honey|growl|cub|4|80|fur|climb trees
rabbit|mammal|gray|a burrow|the meadow|grass and carrots|squeak|bunny|4|25|fur|hop far
hare|mammal|brown|a hollow in the grass|the field|grass and leaves|squeak|leveret|4|28|fur|run very fast
mouse|mammal|gray|a small hole|the field|seeds and cheese|squeak|pup|4|10|fur|hide in tiny places
squirrel|mammal|red|a nest in a tree|the forest|nuts and seeds|chatter|kit|4|20|fur|climb trees
hedgehog|mammal|brown|a nest of leaves|the garden|worms and beetles|snuffle|hoglet|4|18|spines|roll into a ball
deer|mammal|brown|a quiet thicket|the forest|grass and leaves|grunt|fawn|4|70|fur|jump high
wolf|mammal|gray|a den|the forest|meat|howl|pup|4|60|fur|run for hours
badger|mammal|black and white|a burrow|the forest|worms and roots|growl|cub|4|35|fur|dig deep holes
mole|mammal|black|a tunnel|the garden|worms|squeak|pup|4|12|fur|dig tunnels
otter|mammal|brown|a den by the river|the river|fish|whistle|pup|4|38|fur|swim well
beaver|mammal|brown|a lodge|the river|bark and twigs|grunt|kit|4|39|fur|build dams
bat|mammal|black|a cave|the forest|moths and flies|squeak|pup|2|11|fur|fly in the dark
cat|mammal|gray|a house|the village|fish and mice|meow|kitten|4|30|fur|see in the dark
dog|mammal|brown|a kennel|the village|meat and bones|bark|puppy|4|45|fur|smell very well
horse|mammal|brown|a stable|the farm|hay and oats|neigh|foal|4|85|hair|gallop fast
donkey|mammal|gray|a stable|the farm|hay and thistles|bray|foal|4|75|hair|carry heavy loads
cow|mammal|black and white|a barn|the farm|grass and hay|moo|calf|4|84|hair|give milk
sheep|mammal|white|a fold|the farm|grass|bleat|lamb|4|58|wool|grow warm wool
goat|mammal|white|a shed|the farm|grass and leaves|bleat|kid|4|55|hair|climb rocks
pig|mammal|pink|a sty|the farm|corn and roots|grunt|piglet|4|59|skin|find food with its nose
elephant|mammal|gray|a wide plain|the savanna|grass and fruit|trumpet|calf|4|98|skin|lift heavy logs
lion|mammal|yellow|a shady plain|the savanna|meat|roar|cub|4|78|fur|run and jump
tiger|mammal|orange and black|a thick jungle|the jungle|meat|roar|cub|4|79|fur|swim and climb
giraffe|mammal|yellow and brown|a wide plain|the savanna|leaves|hum|calf|4|95|fur|reach tall trees
zebra|mammal|black and white|a wide plain|the savanna|grass|bark|foal|4|76|hair|run in herds
hippo|mammal|gray|a muddy river|the river|grass|grunt|calf|4|93|skin|walk under water
camel|mammal|brown|a dry desert|the desert|dry plants|groan|calf|4|87|hair|go long without water
monkey|mammal|brown|a tall tree|the jungle|fruit and nuts|chatter|infant|2|42|fur|swing from trees
kangaroo|mammal|brown|a dry plain|the grassland|grass|cough|joey|4|68|fur|jump far
koala|mammal|gray|a tall tree|the forest|leaves|grunt|joey|4|37|fur|sleep all day
panda|mammal|black and white|a bamboo forest|the mountains|bamboo|bleat|cub|4|74|fur|eat all day
seal|mammal|gray|a rocky shore|the sea|fish|bark|pup|0|69|fur|swim and dive
whale|mammal|blue|deep water|the sea|tiny shrimp|sing|calf|0|100|skin|dive very deep
dolphin|mammal|gray|open water|the sea|fish|click|calf|0|72|skin|jump out of the water
owl|bird|brown|a hollow tree|the forest|mice|hoot|owlet|2|29|feathers|see at night
robin|bird|brown and red|a nest|the garden|worms and berries|chirp|chick|2|14|feathers|sing at dawn
crow|bird|black|a nest|the field|seeds and insects|caw|chick|2|24|feathers|solve puzzles
duck|bird|brown|a nest in the reeds|the pond|water plants|quack|duckling|2|27|feathers|swim and fly
goose|bird|white|a nest in the reeds|the lake|grass|honk|gosling|2|33|feathers|fly very far
swan|bird|white|a nest by the water|the lake|water plants|hiss|cygnet|2|43|feathers|swim with grace
hen|bird|brown|a coop|the farm|corn and seeds|cluck|chick|2|26|feathers|lay eggs
rooster|bird|red and brown|a coop|the farm|corn and seeds|crow|chick|2|27|feathers|wake the farm
eagle|bird|brown|a nest on a cliff|the mountains|fish and rabbits|screech|eaglet|2|36|feathers|fly very high
parrot|bird|green|a hole in a tree|the jungle|fruit and seeds|squawk|chick|2|22|feathers|copy words
penguin|bird|black and white|an icy shore|the cold south|fish|honk|chick|2|41|feathers|swim very fast
sparrow|bird|brown|a nest|the village|seeds|chirp|chick|2|13|feathers|fly and hop
peacock|bird|blue and green|a quiet garden|the garden|seeds|scream|peachick|2|44|feathers|open its bright tail
frog|amphibian|green|a pond|the pond|flies|croak|tadpole|4|12|smooth skin|jump and swim
toad|amphibian|brown|a damp hole|the garden|flies and worms|croak|tadpole|4|13|bumpy skin|hide in the mud
turtle|reptile|green|a pond|the pond|water plants|hiss|hatchling|4|23|a shell|hide in its shell
tortoise|reptile|brown|a sunny garden|the garden|leaves and flowers|hiss|hatchling|4|31|a shell|live very long
snake|reptile|green|a hole in the ground|the grass|mice and eggs|hiss|hatchling|0|32|scales|move without legs
lizard|reptile|green|a warm rock|the desert|insects|hiss|hatchling|4|15|scales|climb walls
crocodile|reptile|green|a muddy river|the river|fish and meat|growl|hatchling|4|82|scales|wait without moving
shark|fish|gray|open water|the sea|fish|make no sound|pup|0|83|rough skin|swim very fast
goldfish|fish|orange|a bowl or a pond|the pond|small plants|make no sound|fry|0|8|scales|swim in circles
salmon|fish|pink and silver|a cold river|the river|small fish|make no sound|fry|0|34|scales|swim up rivers
octopus|sea animal|red|a rocky hole|the sea|crabs|make no sound|hatchling|0|46|soft skin|change its color
crab|sea animal|red|a hole in the sand|the beach|small sea animals|click|larva|10|14|a hard shell|walk sideways
snail|small animal|brown|its own shell|the garden|leaves|make no sound|hatchling|0|7|a shell|carry its house
worm|small animal|pink|the soil|the garden|dead leaves|make no sound|hatchling|0|5|soft skin|make the soil better
spider|small animal|black|a web|the garden|flies|make no sound|spiderling|8|4|hair|spin a web
bee|insect|yellow and black|a hive|the meadow|nectar|buzz|larva|6|3|tiny hairs|make honey
ant|insect|black|an anthill|the forest|seeds and crumbs|make no sound|larva|6|1|a hard shell|carry heavy things
butterfly|insect|orange and black|a flower meadow|the meadow|nectar|make no sound|caterpillar|6|4|tiny scales|fly from flower to flower
ladybug|insect|red and black|a green leaf|the garden|tiny insects|make no sound|larva|6|2|a hard shell|fly and crawl
grasshopper|insect|green|the tall grass|the meadow|grass|chirp|nymph|6|4|a hard shell|jump far
cricket|insect|brown|the tall grass|the meadow|leaves|chirp|nymph|6|3|a hard shell|sing at night
firefly|insect|black|the tall grass|the meadow|nectar|make no sound|larva|6|2|a hard shell|glow in the dark
""",
    "name", "class", "color", "home", "habitat", "food", "sound", "baby", "legs", "size", "cover", "skill",
)
ANIMAL = {row["name"]: row for row in ANIMALS}
PLURALS = {"mouse": "mice", "goose": "geese", "sheep": "sheep", "deer": "deer", "wolf": "wolves", "fox": "foxes",
           "ostrich": "ostriches", "octopus": "octopuses", "butterfly": "butterflies", "firefly": "fireflies",
           "goldfish": "goldfish", "salmon": "salmon", "donkey": "donkeys", "monkey": "monkeys", "child": "children",
           "man": "men", "woman": "women", "foot": "feet", "tooth": "teeth", "leaf": "leaves", "knife": "knives",
           "box": "boxes", "brush": "brushes", "bus": "buses", "cherry": "cherries", "berry": "berries",
           "baby": "babies", "city": "cities", "story": "stories", "potato": "potatoes", "tomato": "tomatoes",
           "bench": "benches", "glass": "glasses", "peach": "peaches", "dress": "dresses", "watch": "watches",
           "shelf": "shelves", "loaf": "loaves", "puppy": "puppies", "pony": "ponies", "strawberry": "strawberries",
           "dish": "dishes", "branch": "branches", "library": "libraries", "person": "people", "half": "halves",
           "country": "countries", "lady": "ladies", "day": "days", "toy": "toys", "key": "keys", "boy": "boys"}


def plural(noun):
    if noun in PLURALS:
        return PLURALS[noun]
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


# The color of a thing, and why or when (a sentence that follows it).
COLORS = _pairs("""
the sky|blue|On a clear day the air scatters the blue part of the sunlight.
grass|green|It holds a green stuff that catches sunlight.
a leaf|green|In autumn many leaves turn yellow, orange and red.
snow|white|It is made of many tiny crystals of ice.
the sun|yellow|It looks orange when it goes down in the evening.
the moon|white|It shines because the light of the sun falls on it.
a cloud|white|Before the rain a cloud turns gray.
the sea|blue|Deep water looks darker than shallow water.
a banana|yellow|Before it is ripe, a banana is green.
a lemon|yellow|It tastes very sour.
an orange|orange|The fruit has the same name as its color.
a carrot|orange|It grows under the ground.
a strawberry|red|It is sweet and has tiny seeds on the outside.
a cherry|red|It has a small stone inside.
a tomato|red|Before it is ripe, a tomato is green.
a fire truck|red|People can see it from far away.
a rose|red|Some roses are white, pink or yellow.
a cucumber|green|It is fresh and full of water.
a frog|green|It is hard to see between the leaves.
a pea|green|It grows in a pod.
a lime|green|It is small and sour.
coal|black|It comes from deep under the ground.
the night sky|black|Only the moon and the stars shine in it.
a crow|black|It is a clever bird.
milk|white|It comes from cows and goats.
salt|white|It comes from the sea or from the ground.
sugar|white|It tastes sweet.
paper|white|You can draw on it in every color.
a swan|white|A young swan is gray.
a polar bear|white|It is hard to see in the snow.
chocolate|brown|There is white chocolate too.
wood|brown|It comes from trees.
soil|brown|Plants grow in it.
a potato|brown|It grows under the ground.
coffee|brown|It is made from roasted beans.
bread|brown|The inside of a loaf is lighter.
a pig|pink|It likes to roll in the mud.
a flamingo|pink|It gets its color from its food.
a plum|purple|It is a sweet fruit with a stone.
a grape|purple|Some grapes are green.
an eggplant|purple|It is a vegetable with a shiny skin.
lavender|purple|It smells lovely.
an elephant|gray|It is the largest animal on land.
a mouse|gray|It is small and quick.
a stone|gray|Some stones are brown, white or black.
smoke|gray|It rises from a fire.
rain clouds|gray|They are full of water.
gold|yellow|It is a shiny metal.
silver|gray|It is a shiny metal.
a pumpkin|orange|It is ripe in autumn.
a fox|orange|Its tail has a white tip.
corn|yellow|It grows in tall rows in the field.
the yolk of an egg|yellow|The rest of the egg is white.
honey|yellow|Bees make it from nectar.
butter|yellow|It is made from milk.
a sunflower|yellow|It turns its head to the sun.
blood|red|The heart pumps it through the body.
a ladybug|red|It has black spots.
a blueberry|blue|It is small and sweet.
a whale|blue|The blue whale is the largest animal of all.
sand|yellow|It is made of tiny grains of stone.
a brick|red|Walls and houses are built with bricks.
ink|black|You can write with it.
tar|black|It is sticky and used for roads.
a cotton ball|white|It is soft and light.
""")

MADE_OF = _pairs("""
a window|glass|you can see through it
a bottle|glass|it holds water and lets you see inside
a table|wood|wood is strong and easy to cut
a chair|wood|wood is strong and light
a door|wood|wood is strong and keeps out the wind
a pencil|wood|it has a gray core that writes
a boat|wood|wood floats on water
a book|paper|people can print words on it
a letter|paper|you can write on it and fold it
a newspaper|paper|paper is thin and cheap
a scarf|wool|wool is soft and warm
a sweater|wool|wool keeps you warm
a shirt|cotton|cotton is soft and light
a towel|cotton|cotton soaks up water
a shoe|leather|leather is strong and bends
a belt|leather|leather is strong and bends
a coin|metal|metal lasts for a long time
a spoon|metal|metal is hard and easy to clean
a key|metal|metal is hard and keeps its shape
a nail|iron|iron is hard and strong
a horseshoe|iron|iron is hard and strong
a bell|metal|metal rings when you hit it
a ring|gold|gold is shiny and does not rust
a crown|gold|gold is shiny and does not rust
a cup|clay|clay gets hard in a hot oven
a pot|clay|clay gets hard in a hot oven
a brick|clay|clay gets hard in a hot oven
a wall|stone|stone is heavy and strong
a statue|stone|stone lasts for a long time
a tire|rubber|rubber bends and holds the road
a ball|rubber|rubber bounces
a candle|wax|wax melts and burns slowly
a snowman|snow|snow sticks together when it is a little wet
an icicle|ice|water freezes when it is very cold
a sandcastle|sand|wet sand keeps its shape
a basket|straw|straw is light and bends
a nest|twigs|birds can carry twigs
a web|silk|silk is thin and strong
a rope|hemp|hemp is long and strong
a bucket|plastic|plastic is light and holds water
a toothbrush|plastic|plastic is light and cheap
bread|flour|flour comes from wheat
cheese|milk|milk turns thick and is pressed
butter|cream|cream turns thick when you shake it
jam|fruit|fruit is cooked with sugar
chocolate|cocoa|cocoa beans grow on trees in warm lands
a raincoat|plastic|plastic keeps out the rain
a tent|cloth|cloth is light and easy to fold
""")

TOOLS = _pairs("""
a hammer|hit nails
a saw|cut wood
a knife|cut bread
a spoon|eat soup
a fork|pick up food
a cup|drink tea
a pencil|write and draw
a brush|paint a picture
a broom|sweep the floor
a bucket|carry water
a needle|sew clothes
a key|open a lock
a lamp|light a room
a clock|tell the time
an umbrella|stay dry in the rain
a ladder|climb up high
a rope|tie things together
a net|catch fish
a shovel|dig a hole
a rake|gather leaves
a map|find the way
a compass|find north
a telescope|look at the stars
a ruler|measure a line
a scale|find out how heavy a thing is
a thermometer|measure how warm it is
a comb|tidy your hair
a towel|dry yourself
a pillow|rest your head
a blanket|keep warm
an oven|bake bread
a kettle|boil water
a pan|fry eggs
a basket|carry fruit
a boat|cross the water
a bicycle|ride along the road
a train|carry many people on rails
a bridge|cross a river
a whistle|make a loud sound
a mirror|see your own face
a book|read and learn
a magnet|pick up things made of iron
a candle|give light when it is dark
a tent|sleep outside
a raincoat|stay dry in the rain
""")

OPPOSITES = _pairs("""
hot|cold
big|small
tall|short
long|short
fast|slow
happy|sad
day|night
light|dark
up|down
left|right
in|out
open|closed
full|empty
old|young
new|old
good|bad
hard|soft
heavy|light
high|low
loud|quiet
wet|dry
clean|dirty
early|late
first|last
near|far
rich|poor
strong|weak
sweet|sour
thick|thin
wide|narrow
brave|afraid
kind|mean
easy|difficult
true|false
right|wrong
rough|smooth
sharp|blunt
deep|shallow
warm|cool
awake|asleep
summer|winter
north|south
east|west
begin|end
push|pull
give|take
buy|sell
win|lose
come|go
laugh|cry
remember|forget
love|hate
always|never
all|none
front|back
top|bottom
inside|outside
above|below
before|after
question|answer
friend|enemy
clever|foolish
lazy|busy
safe|dangerous
straight|crooked
polite|rude
alive|dead
same|different
""")

CAPITALS = _pairs("""
France|Paris|Europe
Germany|Berlin|Europe
Italy|Rome|Europe
Spain|Madrid|Europe
Portugal|Lisbon|Europe
Greece|Athens|Europe
Austria|Vienna|Europe
Poland|Warsaw|Europe
Norway|Oslo|Europe
Sweden|Stockholm|Europe
Finland|Helsinki|Europe
Denmark|Copenhagen|Europe
Ireland|Dublin|Europe
England|London|Europe
Belgium|Brussels|Europe
Hungary|Budapest|Europe
Iceland|Reykjavik|Europe
Switzerland|Bern|Europe
Russia|Moscow|Europe
Turkey|Ankara|Asia
Japan|Tokyo|Asia
China|Beijing|Asia
India|New Delhi|Asia
Thailand|Bangkok|Asia
Vietnam|Hanoi|Asia
Nepal|Kathmandu|Asia
Mongolia|Ulaanbaatar|Asia
Egypt|Cairo|Africa
Kenya|Nairobi|Africa
Morocco|Rabat|Africa
Ghana|Accra|Africa
Nigeria|Abuja|Africa
Ethiopia|Addis Ababa|Africa
Senegal|Dakar|Africa
Canada|Ottawa|North America
Mexico|Mexico City|North America
Cuba|Havana|North America
Brazil|Brasilia|South America
Argentina|Buenos Aires|South America
Chile|Santiago|South America
Peru|Lima|South America
Colombia|Bogota|South America
Australia|Canberra|Australia
New Zealand|Wellington|Oceania
""")

FOODS = _pairs("""
an apple|fruit|sweet|on a tree
a pear|fruit|sweet|on a tree
a cherry|fruit|sweet|on a tree
a plum|fruit|sweet|on a tree
a peach|fruit|sweet|on a tree
an orange|fruit|sweet|on a tree
a lemon|fruit|sour|on a tree
a lime|fruit|sour|on a tree
a banana|fruit|sweet|on a tall plant
a strawberry|fruit|sweet|on a low plant
a blueberry|fruit|sweet|on a bush
a raspberry|fruit|sweet|on a bush
a grape|fruit|sweet|on a vine
a melon|fruit|sweet|on the ground
a carrot|vegetable|sweet|under the ground
a potato|vegetable|mild|under the ground
an onion|vegetable|sharp|under the ground
a radish|vegetable|sharp|under the ground
a beet|vegetable|sweet|under the ground
a cabbage|vegetable|mild|on the ground
a pumpkin|vegetable|sweet|on the ground
a cucumber|vegetable|fresh|on a vine
a pea|vegetable|sweet|in a pod
a bean|vegetable|mild|in a pod
corn|vegetable|sweet|on a tall stalk
spinach|vegetable|mild|on the ground
""")

JOBS = _pairs("""
a baker|bakes bread and cakes|a bakery
a farmer|grows food and keeps animals|a farm
a teacher|helps children learn|a school
a doctor|helps sick people get well|a hospital
a nurse|takes care of sick people|a hospital
a firefighter|puts out fires|a fire station
a sailor|works on a ship|a ship
a fisher|catches fish|a boat
a tailor|makes and mends clothes|a workshop
a cook|cooks meals|a kitchen
a gardener|takes care of plants|a garden
a carpenter|builds things of wood|a workshop
a painter|paints pictures and walls|a studio
a musician|plays music|a concert hall
a librarian|takes care of books|a library
a pilot|flies a plane|an airport
a driver|drives a bus or a truck|the road
a shepherd|looks after sheep|the hills
a miner|digs for coal and metal|a mine
a dentist|takes care of teeth|a clinic
a vet|helps sick animals|a clinic
a judge|decides what is fair|a court
a scientist|finds out how things work|a laboratory
a writer|writes stories and books|a quiet room
a builder|builds houses|a building site
a shopkeeper|sells things|a shop
a blacksmith|makes things of iron|a forge
a beekeeper|takes care of bees|a garden with hives
a potter|makes cups and pots of clay|a workshop
a clockmaker|makes and mends clocks|a workshop
""")

BODY = _pairs("""
eyes|see|two
ears|hear|two
a nose|smell|one
a tongue|taste|one
hands|hold things|two
feet|walk and stand|two
legs|walk and run|two
teeth|chew food|many
a heart|pump blood|one
lungs|breathe|two
a stomach|digest food|one
a brain|think|one
bones|stand up straight|many
muscles|move|many
skin|feel things|one
fingers|grip and touch|ten
toes|keep your balance|ten
a mouth|eat and speak|one
""")

# Two ways to say each fact, then a question and its short answer.
SCIENCE = _pairs("""
The sun is a star.|Our sun is a star that is very near to us.|What is the sun?|The sun is a star.
The earth goes around the sun in one year.|It takes the earth one year to go around the sun.|How long does the earth take to go around the sun?|It takes one year.
The moon goes around the earth.|The earth has one moon, and it goes around us.|What goes around the earth?|The moon goes around the earth.
The earth turns around itself once a day.|One turn of the earth takes one day.|How long does the earth take to turn once?|It takes one day.
Water freezes when it is very cold.|When it is very cold, water turns into ice.|What happens to water when it is very cold?|It freezes and turns into ice.
Water boils when it is very hot.|When water is very hot, it boils and turns into steam.|What happens to water when it is very hot?|It boils and turns into steam.
Ice melts when it gets warm.|When ice gets warm, it turns into water.|What happens to ice when it gets warm?|It melts and turns into water.
Plants need water, light and soil.|To grow, plants need light, water and soil.|What do plants need to grow?|Plants need water, light and soil.
Rain falls from clouds.|Clouds are made of tiny drops, and they fall as rain.|Where does rain come from?|Rain falls from clouds.
A rainbow has seven colors.|There are seven colors in a rainbow: red, orange, yellow, green, blue, indigo and violet.|How many colors does a rainbow have?|A rainbow has seven colors.
A rainbow appears when the sun shines through rain.|When sunlight meets raindrops, we see a rainbow.|When do we see a rainbow?|We see a rainbow when the sun shines through rain.
Thunder comes after lightning.|First we see the lightning, then we hear the thunder.|What comes after lightning?|Thunder comes after lightning.
Magnets pull things made of iron.|Iron sticks to a magnet.|What does a magnet pull?|A magnet pulls things made of iron.
Wood floats on water, and stone sinks.|A stone sinks in water, but wood floats.|Does wood float or sink?|Wood floats on water.
A stone sinks in water.|If you throw a stone into the water, it sinks.|Does a stone float or sink?|A stone sinks in water.
Bees make honey from nectar.|Honey is made by bees.|Who makes honey?|Bees make honey.
Birds hatch from eggs.|A young bird comes out of an egg.|Where do young birds come from?|Young birds hatch from eggs.
A caterpillar turns into a butterfly.|One day a caterpillar becomes a butterfly.|What does a caterpillar turn into?|A caterpillar turns into a butterfly.
A tadpole turns into a frog.|A young frog is called a tadpole.|What does a tadpole turn into?|A tadpole turns into a frog.
Fish breathe with gills.|With their gills, fish can breathe under water.|How do fish breathe?|Fish breathe with gills.
The blue whale is the largest animal.|No animal is larger than the blue whale.|What is the largest animal?|The blue whale is the largest animal.
The giraffe is the tallest animal.|No animal is taller than the giraffe.|What is the tallest animal?|The giraffe is the tallest animal.
The cheetah is the fastest animal on land.|No animal on land runs faster than the cheetah.|What is the fastest animal on land?|The cheetah is the fastest animal on land.
Sound is made when things shake.|When things shake quickly, we hear a sound.|What makes a sound?|Things that shake make a sound.
Light is faster than sound.|Sound is slower than light.|Which is faster, light or sound?|Light is faster than sound.
Shadows appear where light cannot reach.|A shadow is a place that the light does not reach.|What is a shadow?|A shadow is a place where the light does not reach.
The sun rises in the east.|Every morning the sun comes up in the east.|Where does the sun rise?|The sun rises in the east.
The sun sets in the west.|Every evening the sun goes down in the west.|Where does the sun set?|The sun sets in the west.
A spider has eight legs.|Spiders walk on eight legs.|How many legs does a spider have?|A spider has eight legs.
An insect has six legs.|All insects have six legs.|How many legs does an insect have?|An insect has six legs.
There are twelve months in a year.|A year has twelve months.|How many months are in a year?|There are twelve months in a year.
There are seven days in a week.|A week has seven days.|How many days are in a week?|There are seven days in a week.
There are twenty four hours in a day.|A day has twenty four hours.|How many hours are in a day?|There are twenty four hours in a day.
There are sixty minutes in an hour.|An hour has sixty minutes.|How many minutes are in an hour?|There are sixty minutes in an hour.
There are sixty seconds in a minute.|A minute has sixty seconds.|How many seconds are in a minute?|There are sixty seconds in a minute.
There are four seasons: spring, summer, autumn and winter.|The four seasons are spring, summer, autumn and winter.|What are the four seasons?|The four seasons are spring, summer, autumn and winter.
A year has four seasons.|There are four seasons in a year.|How many seasons are in a year?|There are four seasons in a year.
A triangle has three sides.|There are three sides in a triangle.|How many sides does a triangle have?|A triangle has three sides.
A square has four equal sides.|All four sides of a square are equal.|How many sides does a square have?|A square has four sides.
A circle is round and has no corners.|There are no corners in a circle.|How many corners does a circle have?|A circle has no corners.
A dozen means twelve.|Twelve things are called a dozen.|How many are a dozen?|A dozen means twelve.
The largest planet is Jupiter.|Jupiter is the largest planet.|Which planet is the largest?|Jupiter is the largest planet.
Mercury is the planet nearest to the sun.|The planet nearest to the sun is Mercury.|Which planet is nearest to the sun?|Mercury is nearest to the sun.
Mars is called the red planet.|The red planet is Mars.|Which planet is called the red planet?|Mars is called the red planet.
There are eight planets around the sun.|Eight planets go around the sun.|How many planets go around the sun?|Eight planets go around the sun.
The largest ocean is the Pacific.|The Pacific is the largest ocean.|Which ocean is the largest?|The Pacific is the largest ocean.
The highest mountain is Mount Everest.|Mount Everest is the highest mountain.|What is the highest mountain?|Mount Everest is the highest mountain.
The longest river of Africa is the Nile.|The Nile is the longest river of Africa.|What is the longest river of Africa?|The Nile is the longest river of Africa.
The largest hot desert is the Sahara.|The Sahara is the largest hot desert.|What is the largest hot desert?|The Sahara is the largest hot desert.
There are seven continents.|The world has seven continents.|How many continents are there?|There are seven continents.
Sea water is salty.|The water of the sea tastes of salt.|What does sea water taste like?|Sea water is salty.
Trees give us wood, fruit and fresh air.|From trees we get wood, fruit and fresh air.|What do trees give us?|Trees give us wood, fruit and fresh air.
Paper is made from trees.|People make paper from trees.|What is paper made from?|Paper is made from trees.
Glass is made from sand.|People melt sand to make glass.|What is glass made from?|Glass is made from sand.
Flour is made from wheat.|The miller grinds wheat into flour.|What is flour made from?|Flour is made from wheat.
Wool comes from sheep.|Sheep give us wool.|Where does wool come from?|Wool comes from sheep.
Milk comes from cows and goats.|Cows and goats give us milk.|Where does milk come from?|Milk comes from cows and goats.
Eggs come from hens.|Hens lay eggs.|Where do eggs come from?|Eggs come from hens.
Some animals sleep all winter.|Hedgehogs and bats sleep all winter.|Which animals sleep all winter?|Hedgehogs and bats sleep all winter.
Many birds fly south in autumn.|In autumn many birds fly to warm lands in the south.|What do many birds do in autumn?|They fly south to warm lands.
Leaves fall from the trees in autumn.|In autumn the trees lose their leaves.|When do leaves fall from the trees?|Leaves fall in autumn.
Flowers bloom in spring.|In spring the flowers open.|When do flowers bloom?|Flowers bloom in spring.
It snows in winter.|Winter brings snow.|When does it snow?|It snows in winter.
Summer is the warmest season.|The warmest season is summer.|Which season is the warmest?|Summer is the warmest season.
Winter is the coldest season.|The coldest season is winter.|Which season is the coldest?|Winter is the coldest season.
Oil floats on water.|Water is heavier than oil, so oil floats.|Does oil float on water?|Yes, oil floats on water.
Wind is air that moves.|When air moves, we call it wind.|What is wind?|Wind is air that moves.
Fog is a cloud on the ground.|A cloud that lies on the ground is called fog.|What is fog?|Fog is a cloud on the ground.
Things fall down because the earth pulls them.|The earth pulls all things down, and that is called gravity.|Why do things fall down?|Things fall down because the earth pulls them.
We see the moon because it reflects the light of the sun.|The moon has no light of its own and reflects the sun.|Why does the moon shine?|The moon shines because it reflects the light of the sun.
The sky looks blue because the air scatters blue light.|Air scatters blue light, and so the sky looks blue.|Why is the sky blue?|The sky is blue because the air scatters blue light.
Grass is green because it holds a green stuff that catches sunlight.|A green stuff catches sunlight in the grass.|Why is grass green?|Grass is green because it holds a green stuff that catches sunlight.
People wear coats in winter to keep warm.|In winter a coat keeps people warm.|Why do people wear coats in winter?|They wear coats to keep warm.
We brush our teeth to keep them clean.|Brushing keeps our teeth clean and healthy.|Why do we brush our teeth?|We brush our teeth to keep them clean and healthy.
We sleep because the body needs rest.|The body needs rest, so we sleep.|Why do we sleep?|We sleep because the body needs rest.
We eat because food gives us energy.|Food gives us the energy to live and play.|Why do we eat?|We eat because food gives us energy.
""")

MIXES = [("red", "yellow", "orange"), ("blue", "yellow", "green"), ("red", "blue", "purple"), ("red", "white", "pink"),
         ("black", "white", "gray"), ("red", "green", "brown")]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December"]
SEASON_OF = {"December": "winter", "January": "winter", "February": "winter", "March": "spring", "April": "spring",
             "May": "spring", "June": "summer", "July": "summer", "August": "summer", "September": "autumn",
             "October": "autumn", "November": "autumn"}
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"]

# Things from small to large, for comparing.
SIZES = """a grain of sand|a seed|a pea|a coin|a button|a cherry|a key|an egg|an apple|a cup|a shoe|a book|a cat|a chair
a table|a door|a car|a tree|a house|a church|a hill|a mountain|the moon|the earth|the sun""".replace("\n", "|").split("|")
SPEEDS = "a snail|a tortoise|a worm|a duck|a cow|a child|a dog|a horse|a train|a plane|a rocket".split("|")
WEIGHTS = "a feather|a leaf|a pencil|an apple|a book|a brick|a chair|a goat|a cow|an elephant|a ship".split("|")

PAST = dict(_pairs("""
go|went
run|ran
see|saw
eat|ate
find|found
take|took
give|gave
come|came
sing|sang
swim|swam
fly|flew
write|wrote
read|read
sleep|slept
think|thought
bring|brought
buy|bought
catch|caught
teach|taught
build|built
lose|lost
make|made
say|said
hear|heard
feel|felt
fall|fell
grow|grew
know|knew
draw|drew
break|broke
speak|spoke
drink|drank
begin|began
walk|walked
jump|jumped
play|played
laugh|laughed
help|helped
call|called
cook|cooked
look|looked
dance|danced
"""))

RHYMES = _pairs("""
cat|hat
mouse|house
bee|tree
fox|box
bear|chair
frog|log
goat|boat
star|car
moon|spoon
light|night
rain|train
snow|crow
king|ring
dog|fog
sun|fun
cake|lake
ball|wall
sky|fly
day|play
bed|red
sea|key
book|hook
fish|dish
duck|truck
whale|tail
""")

FEELINGS = _pairs("""
happy|a friend comes to visit|smile
sad|a toy is broken|cry
angry|somebody takes what is ours|frown
afraid|it is very dark|tremble
proud|we have done a hard thing well|stand tall
tired|we have worked all day|yawn
lonely|nobody is there to play with|sit quietly
surprised|something happens that we did not expect|open our eyes wide
thankful|somebody helps us|say thank you
hungry|we have not eaten for a long time|look for food
thirsty|we have not drunk for a long time|look for water
bored|there is nothing to do|sigh
curious|we want to know something|ask questions
brave|we do what is right although we are afraid|go on
""")

WEATHER = _pairs("""
sunny|the sun shines and the sky is blue|a hat
rainy|rain falls from gray clouds|an umbrella
snowy|white snow falls and covers the ground|a warm coat
windy|the wind blows and the trees bend|a scarf
foggy|a white fog covers the land|a lamp
stormy|there is thunder and lightning|a safe place indoors
cloudy|gray clouds cover the sky|a sweater
hot|the air is warm and the ground is dry|a cool drink
cold|the air is cold and water freezes|a thick coat
""")

BOYS = """Tom Ben Max Sam Leo Finn Jack Oscar Noah Hugo Paul Otto Theo Felix Jonas Emil Milo Henry Peter Arthur Oliver Adam Simon
Toby Alfie Bruno Karim Omar Yusuf Ravi Kofi Diego Pablo Ivan Kenji Lars Anton Rufus Jasper Barney Pip Bobo Gus Monty Chester
Rusty Bramble Nico Hans Walter Luca James Robert John Michael David William Richard Joseph Thomas Charles Daniel Matthew Anthony Mark Donald Steven Andrew
Kevin Brian George Edward Ronald Timothy Jason Jeffrey Ryan Jacob Gary Nicholas Eric Stephen Jonathan Larry Justin Scott Brandon Benjamin
Samuel Gregory Frank Alexander Raymond Patrick Dennis Jerry Tyler Aaron Jose Nathan Douglas Zachary Kyle Ethan Jeremy Liam Mason Logan Lucas
Elijah Aiden Caleb Isaac Owen Wyatt Ali Hassan Ahmed Hiroshi Wei Sven Olaf Erik Marco Giovanni Carlos Juan Pierre Louis Dmitri Boris""".split()
GIRLS = """Anna Mia Lily Emma Sara Nora Ella Lucy Rosa Clara Ida Greta Ruby Molly Daisy Hazel Ivy Alice Julia Marie Sophie Zoe
Amina Leila Priya Mei Yuki Ines Carla Freya Elsa Tilly Poppy Willow Flora Olive Maya Nina Lola Bella Honey Pearl Juno Fern
Misty Dora Lotte Frida Tess Wanda Susan Linda Karen Betty Sandra Ashley Emily Donna Michelle Amanda Melissa Deborah Stephanie Rebecca Laura Helen
Sharon Cynthia Kathleen Amy Angela Brenda Pamela Nicole Samantha Katherine Christine Rachel Carolyn Janet Maria Heather Diane Olivia Ava
Isabella Charlotte Amelia Harper Evelyn Abigail Ella Scarlett Grace Chloe Victoria Riley Aria Penelope Layla Nora Zara Fatima Aisha
Sakura Hana Ling Ingrid Astrid Bianca Valentina Camila Lucia Elena Irina Olga Svetlana Chiara Giulia""".split()
FANTASY = ["dragon", "robot", "little star", "snowman", "ghost", "fairy", "giant", "wizard", "princess", "prince", "king",
           "queen", "toy soldier", "teddy bear", "paper boat", "little cloud", "scarecrow", "unicorn", "mermaid", "pirate",
           "knight", "dinosaur", "little train", "old tree", "moonbeam", "elf", "troll", "detective", "pilot", "astronaut", "doctor", "nurse",
           "dancer", "singer", "hunter", "miller", "postman", "captain", "inventor", "clown", "juggler", "magician", "thief", "giantess",
           "potato", "carrot", "cloud", "star", "snowflake", "raindrop", "leaf", "flower", "mushroom", "pumpkin", "stone", "river", "mountain",
           "car", "bus", "truck", "tractor", "helicopter", "submarine", "computer", "lighthouse keeper", "gardener", "baker", "farmer",
           "teacher", "cook", "painter", "sailor", "shepherd", "tailor", "student", "baby", "grandmother", "grandfather", "twin", "scientist",
           "vampire", "witch", "monster", "alien", "phoenix", "dwarf", "goblin", "gnome", "puppet", "statue", "sheriff", "cowboy", "ninja",
           "superhero", "cheetah", "leopard", "gorilla", "rhino", "lobster", "moth", "beetle", "raccoon", "skunk", "pony", "hamster",
           "guinea pig", "llama", "moose", "reindeer", "walrus", "pelican", "flamingo", "woodpecker", "pigeon", "seagull", "stork", "chicken",
           "turkey", "puppy", "kitten", "lamb", "bunny", "chick", "duckling", "caterpillar", "dragonfly", "jellyfish", "starfish"]
GROWNUPS = ["farmer", "baker", "gardener", "sailor", "fisher", "carpenter", "painter", "shepherd", "tailor", "clockmaker",
            "teacher", "cook", "beekeeper", "blacksmith", "potter", "librarian"]
TRAITS = ["little", "young", "small", "brave", "shy", "clever", "kind", "curious", "gentle", "quiet", "cheerful", "clumsy",
          "proud", "sleepy", "playful", "careful", "funny", "patient", "hungry", "honest", "lonely", "old", "friendly", "busy"]
OBJECTS = """ball kite hat scarf bell drum boat basket lantern umbrella button key ring coin book spoon cup blanket ribbon flute
whistle wagon balloon puzzle doll mitten shoe feather shell stone marble box map pencil brush bucket pillow bow mirror
bracelet top sock glove coat flag letter backpack necklace cap candle bicycle scooter sled robot rocket jar bottle clock chair
teapot ladder rope bag purse apron jacket sweater crown trumpet guitar violin harp horn pot pan plate fork wallet watch telescope compass
magnet ruler notebook sticker postcard picture frame curtain carpet broom rake shovel wheel tractor truck train plane ship tower cube
dice card pebble crystal pearl diamond lamp torch tent hammock net hook bead thimble needle basin tub barrel crate""".split()
THING_COLORS = "red blue green yellow orange purple pink white black brown gray golden silver".split()

# Places: how one is there, the place, three things one sees there.
PLACES = _pairs("""
in|the forest|tall trees|soft moss|a winding path
in|the meadow|wild flowers|long grass|a little stream
in|the garden|red roses|a wooden bench|a stone wall
by|the river|smooth stones|green reeds|an old bridge
by|the lake|still water|a small pier|white lilies
by|the pond|green reeds|round lily pads|a muddy bank
on|the hill|short grass|a lonely tree|gray rocks
at|the beach|soft sand|round shells|small waves
on|the farm|a red barn|a wooden fence|a stack of hay
in|the village|narrow streets|a small market|an old well
in|the town|tall houses|a busy square|a stone fountain
in|the park|a green lawn|a row of benches|a big swing
in|the mountains|steep paths|high cliffs|cold springs
in|the jungle|thick vines|huge leaves|bright flowers
in|the desert|yellow dunes|dry bushes|warm rocks
on|the island|palm trees|a quiet bay|sharp rocks
in|the valley|green fields|a clear brook|a stone house
in|the orchard|apple trees|fallen fruit|a long ladder
near|the old mill|a turning wheel|sacks of flour|a narrow bridge
near|the lighthouse|high rocks|a winding stair|a bright lamp
in|the castle|long halls|a tall tower|a heavy gate
at|school|small desks|a big board|a shelf full of books
in|the library|high shelves|soft chairs|old books
in|the kitchen|a warm oven|a big table|shiny pans
in|the attic|dusty boxes|an old trunk|a small window
in|the snow|white fields|a frozen brook|bare trees
""")
HIDING = ["under a bush", "behind a big rock", "inside a hollow log", "under a pile of leaves", "behind an old door",
          "next to a wooden fence", "under a bench", "in the tall grass", "behind a stone wall", "at the bottom of a basket",
          "between the roots of a tree", "under a wooden bridge", "behind a barrel", "near a pile of stones", "in an empty pot",
          "under a blanket", "beside the well", "behind the curtain", "on a window sill", "under the stairs"]
TREATS = ["apple", "pear", "cherry", "plum", "berry", "nut", "cookie", "cake", "muffin", "carrot", "sandwich", "bun", "pancake",
          "peach", "biscuit", "strawberry"]
SOUPS = ["carrot soup", "pumpkin soup", "mushroom soup", "tomato soup", "pea soup", "onion soup", "noodle soup"]
BAKES = [("an apple pie", ["flour", "butter", "sugar", "apples"]), ("a chocolate cake", ["flour", "eggs", "sugar", "cocoa"]),
         ("honey bread", ["flour", "milk", "yeast", "honey"]), ("berry muffins", ["flour", "eggs", "butter", "berries"]),
         ("lemon cookies", ["flour", "butter", "sugar", "lemons"]), ("a carrot cake", ["flour", "eggs", "nuts", "carrots"]),
         ("pancakes", ["flour", "eggs", "milk", "butter"]), ("a plum tart", ["flour", "butter", "sugar", "plums"])]

HOME_ON = {"an icy shore", "a rocky shore", "a wide plain", "a shady plain", "a dry plain", "a warm rock", "a green leaf"}


def in_home(row):
    """Where an animal lives, with the right small word before it."""
    return ("on " if row["home"] in HOME_ON else "in ") + row["home"]


INSTRUMENTS = _pairs("""
a piano|keys|a large instrument with black and white keys
a guitar|strings|an instrument with six strings
a violin|strings|a small instrument that you play with a bow
a harp|strings|a tall instrument with many strings
a drum|a skin|a round instrument that you beat with sticks
a flute|air|a thin pipe that you blow
a trumpet|air|a shiny horn that you blow
a bell|metal|a metal cup that rings when you hit it
a whistle|air|a small pipe with a high sound
a xylophone|bars|an instrument with bars that you hit
""")
VEHICLES = _pairs("""
a car|on the road|four wheels
a bus|on the road|four wheels and many seats
a bicycle|on the road|two wheels
a truck|on the road|big wheels and carries heavy things
a train|on rails|an engine and many wagons
a ship|on the sea|a big hull and carries many people
a boat|on the water|oars or a sail
a plane|in the air|two wings
a helicopter|in the air|a big rotor on top
a rocket|into space|a strong engine
a submarine|under water|no windows to open
a sled|on the snow|runners and no wheels
a tractor|on the field|big back wheels
a balloon|in the air|a basket and hot air
""")
DEFINITIONS = _pairs("""
a river|water that flows through the land to the sea
a lake|a large piece of water with land all around it
an island|a piece of land with water all around it
a mountain|a very high piece of land
a hill|a small mountain
a valley|the low land between mountains
a forest|a large place with many trees
a desert|a very dry place where few plants grow
a beach|the sandy land next to the sea
a village|a small place where people live
a city|a very large place where many people live
a country|a large land with its own people and laws
a map|a picture of the land seen from above
a friend|somebody who likes you and helps you
a family|the people who belong together, like parents and children
a teacher|a person who helps others learn
a king|a man who rules a country
a queen|a woman who rules a country
a story|words that tell what happened to somebody
a song|words that are sung to music
a poem|a short text whose lines often rhyme
a word|some letters that mean something
a letter|a sign that we write, or a message on paper
a number|a sign that says how many there are
a year|the time in which the earth goes around the sun
a day|the time in which the earth turns once
a week|seven days
a month|a part of the year with about thirty days
a minute|sixty seconds
an hour|sixty minutes
morning|the first part of the day
evening|the last part of the day
night|the dark time between two days
a dream|what we see while we sleep
a star|a very large, hot ball of gas that shines
a planet|a large ball that goes around a star
the moon|a ball of rock that goes around the earth
the earth|the planet on which we live
a cloud|many tiny drops of water in the air
rain|water that falls from the clouds
snow|frozen water that falls in white flakes
ice|frozen water
steam|water that has become very hot and rises into the air
wind|air that moves
a storm|very strong wind, often with rain
a rainbow|a bow of seven colors in the sky
fire|the hot, bright flames of something that burns
a shadow|a dark place that the light does not reach
a seed|a small thing from which a plant grows
a root|the part of a plant that is under the ground
a leaf|a flat green part of a plant
a flower|the colorful part of a plant
a tree|a tall plant with a trunk of wood
a fruit|the part of a plant that holds the seeds and is often sweet
a vegetable|a part of a plant that we cook or eat raw
an animal|a living thing that can move and eat
a mammal|an animal that drinks milk when it is young
a bird|an animal with feathers and two wings
a fish|an animal that lives in water and breathes with gills
an insect|a small animal with six legs
a reptile|an animal with scales that lays eggs
an amphibian|an animal that lives in water and on land
a nest|a home that birds build
a house|a building in which people live
a school|a building in which children learn
a kitchen|a room in which people cook
a bridge|a way over a river or a road
a market|a place where people buy and sell things
money|what we pay with
music|sounds that are put together in a beautiful way
a language|the words that people use to speak
a lie|something that is not true
truth|what is really so
love|a strong and warm feeling for somebody
courage|doing what is right although you are afraid
patience|being able to wait without getting angry
a secret|something that only a few people know
a gift|something that you give to make somebody happy
a mistake|something that went wrong
a game|something that we play for fun
a robot|a machine that can do some work by itself
a computer|a machine that works with numbers and words
a language model|a program that has learned from text which word comes next
""")
PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]
INSTEAD = [("tools", ["hammer", "saw", "rake", "shovel", "ladder"]), ("fruits", ["apple", "pear", "plum", "banana", "cherry"]), ("animals", ["fox", "bear", "owl", "frog", "horse"]),
           ("colors", ["red", "blue", "green", "yellow", "brown"]), ("days", ["Monday", "Tuesday", "Friday", "Sunday"]), ("clothes", ["coat", "shirt", "scarf", "hat", "sock"]),
           ("numbers", ["one", "three", "seven", "ten"]), ("vehicles", ["car", "bus", "train", "ship", "plane"])]
