# SPDX-License-Identifier: Apache-2.0
"""Plots with a little wonder, and of small adventures: dragons, stars, snowmen, markets, school.

The same conventions as plots_home.py.
"""

from __future__ import annotations

from plot import Plot

DRAGON = Plot(
    "dragon",
    "[a lonely dragon|a {colour} dragon|{h} and the dragon]",
    (
        ("On a mountain near the [village|town] lived a [big|{colour}] dragon. Everyone was afraid "
         "of it[| and stayed away].",
         "People said that a dragon lived in the [old cave|dark forest]. \"Never go there,\" said "
         "{h.his} {p}."),
        ("One {weather} day, {h} [lost {h.his} way|followed a {pet.kind}|went for a long walk] and "
         "came to the dragon's cave.",
         "But {h} wanted to see the dragon. [Early in the morning|After breakfast], {h.he} [climbed "
         "up the hill|walked into the forest]."),
        ("There {h.he} saw the dragon. It was [crying|sitting all alone|looking very sad]. \"[Why "
         "are you crying|Why are you so sad|What is the matter]?\" asked {h}.",
         "Suddenly, the dragon stood in front of {h.him}! {h} [was scared|wanted to run], but the "
         "dragon [only looked sad|had kind eyes|did not roar]. \"[Are you lonely|Are you all "
         "right]?\" asked {h}."),
        ("\"[Nobody wants to play with me|I have no friends|Everyone runs away from me],\" said the "
         "dragon. \"[They think that I am bad|I am too big|They are afraid of my fire].\"",
         "\"Today is my birthday,\" said the dragon, \"and [nobody came|I am all alone].\""),
        ("\"I will be your friend,\" said {h}. {h.He} [gave the dragon some {food}|sat down next to "
         "the dragon|showed the dragon {h.his} {o.noun}], and they [talked all day|played until it "
         "was dark].",
         "{h} [took the dragon's big hand|smiled at the dragon]. \"[Come with me|Come and meet my "
         "family],\" {h.he} said. \"They will like you.\""),
        ("When they came to the [village|town], the people [screamed|ran into their houses|were "
         "afraid]. \"Stop!\" called {h}. \"[This is my friend|The dragon is kind|It will not hurt "
         "you].\"",
         "Then winter came, and it was very cold. There was no [wood|fire] left. {h} ran to the "
         "dragon and asked for help."),
        ("The dragon [blew a little fire and baked bread for everyone|made a warm fire|lit all the "
         "lamps with its fire]. [The people were surprised|The people came out one by one|The "
         "children laughed and clapped].",
         "The dragon took {h} and {f} on its back, and they flew [over the hills|around the "
         "mountain|up to the clouds]. Soon all the children wanted to fly too."),
        ("From that day on, the dragon was [never lonely again|everyone's friend].",
         "{h} learned that you should [not be afraid of someone who is different|get to know "
         "someone first].",
         "And if you look up at night, you can see {h} and the dragon [fly past the moon|in the "
         "sky]."),
    ),
)

STAR = Plot(
    "fallen star",
    "[a fallen star|{h} and the little star|a star that fell from the sky]",
    (
        ("One [clear|quiet|warm|cold] night, {h} saw a light fall from the sky. It fell {outdoor}.",
         "When {h} looked out of the window one night, something was shining {outdoor}."),
        ("{h.He} [ran out|went out quietly|put on {h.his} coat and went out] to look. It was a "
         "[tiny|little] star! \"[Can you help me?|Please help me!]\" said the star.",
         "There lay a little star. It was [no bigger than an apple|as bright as a lamp|warm and "
         "soft]. \"I fell out of the sky,\" it said, \"and I [want to go home|miss my family].\""),
        ("\"Do not cry,\" said {h}. \"I will [take|bring] you home.\" But how? The sky was so [far "
         "away|high].",
         "{h} thought [hard|for a long time]. \"[How can I bring you home|How does one get to the "
         "sky]?\" {h.he} asked."),
        ("First {h.he} climbed [the tallest tree|up on the roof|the highest hill], but it was not "
         "high enough.",
         "{h.He} tied the star to {o.a} and threw it up, but it fell down again."),
        ("Then {f} had an idea. \"[We can use my kite|Let us ask the wind|Birds fly high],\" said "
         "{f}.",
         "{h.His} {p} woke up and came outside. \"[Stars shine when they are happy|A happy star is "
         "light, and it can fly],\" {p.he} said. \"Make it laugh!\""),
        ("So they [told it funny stories|danced and made funny faces|sang all the songs they knew], "
         "and the star laughed. It became lighter and lighter. Then it [flew up|went up] into the "
         "sky.",
         "A [big|kind|white] bird heard them. It took the star in its beak and flew up, higher and "
         "higher, until they could not see it anymore."),
        ("\"Goodbye!\" called {h}. [High above, the star winked|The star shone brighter than all "
         "the others|Soon there was a new light in the sky].",
         "{h} waved for a long time. Up in the sky, the little star [waved back|winked|was "
         "shining]."),
        ("And every night, {h} said good night to [the star|{h.his} star].",
         "Now {h} was never alone, because a friend was always up there.",
         "When {h} cannot sleep, {h.he} looks at the sky, and the star winks at {h.him}."),
    ),
    heroes="any",
)

SNOWMAN = Plot(
    "snowman",
    "[a snowman|{h} and {f}, who build a snowman|the first snow]",
    (
        ("One winter morning, everything was white. \"[Snow|It is snowing|Look, snow]!\" [cried|"
         "shouted] {h}. {h.He} put on {h.his} {colour} hat and [ran outside|ran out of the house].",
         "It had snowed all night. {h} and {f} [ran outside|could not wait to go out|put on their "
         "boots]."),
        ("{h} and {f} made [three big balls|a big ball and a small ball] of snow. They [worked|"
         "pushed and pulled] until their hands were cold.",
         "\"Let us build a snowman,\" said {f}. They [rolled the snow|worked hard], and the snowman "
         "got [bigger and bigger|taller and taller]."),
        ("They gave it a carrot for a nose and two [stones|nuts] for eyes. But [it looked sad|"
         "something was missing|it looked cold].",
         "It had [a carrot nose|a big nose] and a funny smile, but it had no hat."),
        ("{h} thought for a moment. Then {h.he} [took off {h.his} own hat|got {h.his} {p}'s old "
         "hat|ran home for a scarf] and gave it to the snowman.",
         "\"It needs a friend,\" said {h}. So they built [a small one|another one] next to it."),
        ("{h.His} {p} came out with [hot chocolate|warm milk|hot soup]. \"[What a fine snowman|That "
         "is the best snowman I have ever seen]!\" {p.he} said.",
         "All the [children|neighbors] came to look, and everyone [liked it|laughed|said hello to "
         "the snowman]."),
        ("But [a week later|the next week|one day], the sun came out and it got warm. The snowman "
         "became [smaller and smaller|thin]. \"[Please do not go|Oh no, it is melting],\" said {h}.",
         "Then spring came, and the snowman began to melt. {h} was sad."),
        ("\"Do not be sad,\" said {h.his} {p}. \"[The snow becomes water, and the water helps the "
         "flowers grow|It will come back next winter|Winter will come again].\"",
         "\"[It is not gone|Next year we will build another one],\" said {f}."),
        ("Where the snowman had been, [a small white flower|the first flower of spring] was "
         "growing, and {h} smiled.",
         "And the next winter, {h} and {f} built [an even bigger one|a whole family of snowmen].",
         "{h} kept the hat for next winter."),
    ),
)

PENCIL = Plot(
    "magic pencil",
    "[a magic pencil|{h} and the magic pencil|drawings that come to life]",
    (
        ("One day, {h} found an old pencil {outdoor}. It was {colour}, and it [shone a little|felt "
         "warm in {h.his} hand].",
         "For {h.his} birthday, {h} got a {colour} pencil from {h.his} {p}. \"[Use it well|This is "
         "a special pencil|Be careful what you draw],\" said {h.his} {p}."),
        ("{h} drew {q.a}. Suddenly, there was a [soft sound|flash of light], and the {q.noun} lay "
         "on the table!",
         "{h.He} drew a {pet.kind}. Then something strange happened. The {pet.kind} [moved|winked "
         "at {h.him}] and jumped off the paper!"),
        ("\"[It is magic|This is a magic pencil|I cannot believe it]!\" [cried|whispered] {h}. "
         "{h.He} drew a big cake and ate it all up.",
         "{h} [laughed|was amazed]. {h.He} drew {o.a}, and it became real too."),
        ("Soon the whole room was full of [toys|things]. {h} could not even find {h.his} bed. But "
         "{h.he} [was not happy|had nobody to play with|felt lonely].",
         "Then {h} drew a big [elephant|bear|horse]. That was not a good idea! [It broke the bed|It "
         "was much too big for the house]."),
        ("{f} came to visit and looked very sad. \"[My kite is broken|My dog ran away|My mom is "
         "sick],\" said {f}.",
         "From the window, {h} saw {n}. {n.His} [roof|fence|chair] was broken, and {n.he} could not "
         "fix it."),
        ("{h} had an idea. This time, {h.he} [did not draw something for {h.himself}|drew something "
         "for somebody else]. {h.He} drew [some flowers|a beautiful picture|a warm sun], and the "
         "whole [street|room] was bright.",
         "\"I can help,\" said {h}, and {h.he} drew until the pencil was [very short|small]."),
        ("\"[Thank you|You are so kind]!\" they all said. {h} [felt warm inside|was happier than "
         "before].",
         "Then the pencil was used up. But {h} [was not sad|only smiled]."),
        ("{h} learned that [the best magic is to make others happy|a gift is best when you share "
         "it].",
         "And now {h} draws with a normal pencil, and it is almost as good.",
         ""),
    ),
)

MARKET = Plot(
    "lost at the market",
    "[a {h.kind} who gets lost|{h} at the market|getting lost]",
    (
        ("On Saturday, {h} went to the market with {h.his} {p}. There were so many [people|things "
         "to see]! They saw {fruit}, fresh bread, and {o.a}.",
         "{h} and {h.his} {p} went to the big market to buy {fruit}. \"Stay close to me,\" said "
         "{h.his} {p}."),
        ("{h} stopped to look at [{o.a}|a {pet.kind}|a man who played the flute]. When {h.he} "
         "turned around, {h.his} {p} was gone!",
         "Then {h} saw {o.a} and let go of {h.his} {p}'s hand. When {h.he} looked "
         "up, {h.he} was alone."),
        ("\"{p.Name}! Where are you?\" {h} called, but [nobody answered|there was no answer].",
         "{h} looked left and right. All {h.he} could see were [legs|strangers|bags and baskets].",
         "{h} wanted to cry. [Everybody was so tall|Nobody looked at {h.him}]."),
        ("Then {h} remembered what {h.his} {p} always said. \"If you are lost, [stay where you are|"
         "ask someone who works there for help].\"",
         "{h} took a deep breath. \"[I must stay calm|Do not be afraid],\" {h.he} told "
         "{h.himself}."),
        ("So {h.he} went to {w} and said, \"[Excuse me, I am lost|Please help me, I am lost|I "
         "cannot find my family].\" \"[Do not worry|You are a smart {h.kind}|You did the right "
         "thing],\" said {w}. \"What is your name?\"",
         "{h.He} saw {w} and asked for help. {w.He} [gave {h.him} an apple|took {h.his} hand|let "
         "{h.him} sit on a chair] and called out {h.his} name."),
        ("[Soon|A little later|After a while], {h.his} {p} came running. \"{h}! [I looked for you "
         "everywhere|I am so glad I found you|There you are]!\"",
         "It was not long before {h} heard {h.his} {p}'s voice. They ran to each other and hugged."),
        ("\"I am sorry that I let go,\" said {h}. \"You did well to ask for help,\" said {h.his} "
         "{p}.",
         "\"[You were very brave|I am proud of you],\" said {h.his} {p}[, and {p.he} dried "
         "{h.his} tears|]."),
        ("They thanked {w}, and they [walked home hand in hand|bought some {fruit} and went home].",
         "From then on, {h} always [held {h.his} {p}'s hand|stayed close] at the market.",
         ""),
    ),
)

SCHOOL = Plot(
    "first day of school",
    "[the first day of school|{h}, who is afraid of school|going to school]",
    (
        ("Tomorrow was the first day of school. {h} had a new {colour} bag, but {h.he} [was "
         "worried|felt nervous|did not want to go].",
         "It was {h}'s first day of school. {h.He} [held {h.his} {p}'s hand|walked very slowly|had "
         "butterflies in {h.his} tummy]."),
        ("\"[What if nobody likes me|What if I get lost|What if it is too hard]?\" asked {h}. "
         "\"[Everyone is a little afraid on the first day|It will be fun|You will see, it is not "
         "so bad],\" said {h.his} {p}.",
         "\"I want to go home,\" {h} [whispered|said]. {h.His} {p} [gave {h.him} a small stone. "
         "\"Hold it when you are afraid|kissed {h.his} hand. \"Keep this kiss for later],\" {p.he} "
         "said."),
        ("The school was [very big|loud|full of children]. The teacher smiled and [showed {h} a "
         "seat|asked {h.his} name].",
         "In the classroom, there were [many books|pictures on the walls|small chairs and tables]. "
         "{h} sat down [by the window|at the back|next to a {f.kind}]."),
        ("Next to {h.him} sat a {f.kind} who was crying. {f.His} name was {f}. \"[Are you afraid "
         "too|Do you miss your mom]?\" asked {h}. {f} nodded.",
         "Then {h} saw that {f} had no [pencil|lunch]. \"You can have mine,\" said {h}."),
        ("\"[We can be afraid together|Stay with me|Let us be friends],\" said {h}. Then both of "
         "them felt [better|braver|much better].",
         "{f} smiled, and {h} forgot [to be afraid|{h.his} fear]."),
        ("They [learned a song|painted a {pet.kind}|counted to one hundred|listened to a story], "
         "and in the break, they [played tag|ran around the tree|shared {fruit}].",
         "The teacher read a story about {o.a}. It was so funny that everyone laughed."),
        ("When school was over, {h.his} {p} was waiting. \"How was it?\" asked {h.his} {p}. \"[Can "
         "I go again tomorrow?|It was great!|I made a friend!]\" said {h}.",
         "\"Is it over already?\" asked {h}. The day had gone by so fast."),
        ("The next morning, {h} was [the first one at the door|ready before everyone else].",
         "{h} learned that new things are [only scary at first|not so scary with a friend].",
         ""),
    ),
)

PRETEND = Plot(
    "pretend play",
    "[a big box|{h} and {f}, who play {role}|playing {role}]",
    (
        ("One [rainy|boring|gray|quiet] day, {h} and {f} had nothing to do. Then {h} found a big "
         "empty box [in the kitchen|in the hall|under the stairs|behind the door].",
         "A big box came to {h}'s house. Inside was a new chair, but {h} [liked the box much more|"
         "only wanted the box]."),
        ("\"It is just a box,\" said {f}. \"No,\" said {h}. \"It is [a ship|a castle|a rocket|a "
         "train]!\"",
         "\"What can we do with a box?\" asked {f}. \"[We can play {role}|Today we are {role}],\" "
         "said {h}."),
        ("They painted it {colour} and cut [a window|two windows|a door] in it. {h} [wore {h.his} "
         "{p}'s hat|made a flag|brought {o.a}].",
         "{h} got [some paint|paper and glue], and {f} got [a blanket|two pillows]. Soon "
         "everything was ready."),
        ("They [sailed over the wide sea|flew to the moon|traveled around the world]. They saw "
         "[whales|lions|giants] and [islands|stars|mountains].",
         "\"[Look out, a storm|Land ahead|Hold on tight]!\" cried {f}. They [rocked from side to "
         "side|shook the box] and laughed."),
        ("Suddenly, a [huge|wild|terrible] monster came! It had [four legs and a tail|big teeth|"
         "green eyes]. \"Help!\" [cried|shouted] {f}. But it was only the {housepet}, who wanted "
         "to play too.",
         "Then the box [broke|fell over]. \"Oh no, [our trip is over|we are lost],\" said {f}. "
         "\"We can fix it,\" said {h}, and they [used some tape|tied it with a string]."),
        ("\"[Dinner is ready|Time to eat],\" called {h.his} {p}. The brave {role} [were very "
         "hungry|came home], and everyone ate {food}.",
         "{h.His} {p} looked in. \"May I come along?\" {p.he} asked. \"Yes, but you need a "
         "ticket!\" said {h}."),
        ("\"[That was the best trip ever|Tomorrow we will go farther],\" said {f}.",
         "That night, {h} dreamed of [far lands|the wide sea|stars and {o.a}]."),
        ("With a good friend, [a box can be anything|even a rainy day is an adventure].", ""),
    ),
)

PLOTS = (DRAGON, STAR, SNOWMAN, PENCIL, MARKET, SCHOOL, PRETEND)
