# SPDX-License-Identifier: Apache-2.0
"""Plots outdoors and among animals: rescues, journeys, gardens, weather, races and discoveries.

The same conventions as plots_home.py.
"""

from __future__ import annotations

from plot import Plot

RESCUE = Plot(
    "rescue",
    "[a {h.kind} who helps a {pet.kind}|a lost {pet.kind}|helping a small {pet.kind}]",
    (
        ("One {weather} [day|morning|afternoon], {h} was walking {place.at}. Suddenly, {h.he} "
         "heard a [small|sad|tiny] [sound|cry|voice].",
         "{h} was on {h.his} way home when {h.he} heard [a small cry|a sad little sound|someone "
         "crying] {outdoor}.",
         "It was raining hard, and {h} was running home. Then {h.he} heard a cry {outdoor}."),
        ("It was a {pet.kind}. [Its leg was hurt|It was stuck under a branch|It was wet and cold|"
         "It was all alone and very afraid].",
         "{h.He} looked around and found a little {pet.kind}. It [could not move|was lost|was "
         "stuck in the mud|was shaking]."),
        ("\"[Poor little thing|You poor {pet.kind}|Oh dear],\" said {h}. \"[Do not be afraid.|I "
         "will help you.|Where is your mother?]\"",
         "{h} came closer, very slowly, so that the {pet.kind} would not be [afraid|scared]."),
        ("{h.He} [picked it up gently|wrapped it in {h.his} scarf|held it in {h.his} warm hands] "
         "and took it home. {h.His} {p} found [a box and a soft towel|some milk and a blanket|a "
         "warm place by the fire].",
         "{h.He} tried to pull it out, but {h.he} was not strong enough. So {h.he} ran to {w} and "
         "asked for help. Together they [pulled and pulled|lifted the branch|moved the stone], "
         "and the {pet.kind} was free."),
        ("Every day, {h} gave it [food and water|something to eat|fresh water]. Little by little, "
         "the {pet.kind} got [better|stronger|well again].",
         "The {pet.kind} ate some {food}. Then it [slept for a long time|closed its eyes|"
         "looked much better]."),
        ("[One morning|After a week|A few days later], the {pet.kind} [could walk again|was "
         "strong again|wanted to go outside]. \"You must go back to your family,\" said {h}, and "
         "{h.he} [opened the door|carried it back to {place}|let it go].",
         "Then {h} heard another sound. It was the mother! She had looked for her baby "
         "[everywhere|all day]. [She was so happy to see it|They ran to each other]."),
        ("{h} was a little sad, but {h.he} knew it was the right thing to do.",
         "The {pet.kind} looked back one more time, as if it wanted to say thank you.",
         "\"[You have a kind heart|You did a good thing|I am proud of you],\" said {h.his} {p}."),
        ("And every [spring|morning|summer], the {pet.kind} came back to visit {h}.",
         "{h} never forgot the little {pet.kind}.",
         "From that day on, they were [friends|the best of friends].",
         ""),
    ),
    heroes="child",
)

GARDEN = Plot(
    "garden",
    "[a {plant} seed|a {h.kind} who plants a seed|waiting for a {plant} to grow]",
    (
        ("One day in spring, {h.his} {p} gave {h} a [tiny|small|little] seed. \"If you take care "
         "of it, it will [grow into|become] a {plant},\" said {h.his} {p}.",
         "{h} found a small seed {outdoor}. \"[What is this|What will grow from it]?\" asked {h}. "
         "\"That is a {plant} seed,\" said {w}."),
        ("{h} dug a hole {place.at} and put the seed in it. {h.He} covered it with [earth|soft "
         "earth] and gave it [some water|a little water].",
         "{h} put the seed in a {colour} pot and [set it by the window|gave it water]."),
        ("{h} waited. [One day passed. Two days passed|A whole week passed], but nothing "
         "happened. \"[When will it grow|Why does it take so long]?\" asked {h}.",
         "The next morning, {h} ran out to look. There was nothing to see. The day after, there "
         "was still nothing. {h} [was sad|was not happy|wanted to dig it up]."),
        ("\"[Good things take time|You must be patient|Seeds grow slowly],\" said {h.his} {p}. "
         "\"[Give it water and sun|Wait a little longer].\"",
         "\"It is [asleep|still sleeping] under the ground,\" said {f}. \"[Sing it a song|Just "
         "wait a little].\" So {h} [sang a song every day|waited]."),
        ("Then one {weather} morning, there was a tiny green leaf! {h} [jumped for joy|shouted "
         "with joy|could not believe {h.his} eyes].",
         "After [many days|two weeks|some rain], something green came out of the earth. \"Look! "
         "It is growing!\" [cried|shouted] {h}."),
        ("But one night, there was a [big storm|strong wind]. In the morning, the little plant "
         "was bent. {h} [tied it to a stick|put a stick next to it|built a small fence around "
         "it], and soon it stood tall again.",
         "A hungry [rabbit|snail|bird] wanted to eat the leaves. {h} gave it {fruit}, and it left "
         "the plant alone.",
         ""),
        ("Every day it grew [taller|bigger]. At the end of summer, it was [as tall as {h}|the "
         "most beautiful {plant} of all|big and strong].",
         "In summer, the {plant} was [big and beautiful|ready|taller than {h}]. Everyone came to "
         "see it."),
        ("{h} [gave some of the seeds to {f}|kept one seed for the next year|shared it with "
         "everyone].",
         "\"You were right,\" {h} told {h.his} {p}. \"[Good things take time|It was worth the "
         "wait].\"",
         "{h} was [very proud|so happy], and {h.he} learned to be patient."),
    ),
)

RAIN = Plot(
    "rainy day",
    "[a rainy day|a picnic in the rain|{h} and the rain]",
    (
        ("{h} and {h.his} {p} wanted to have a picnic {place.at}. They packed {food}, {fruit}, "
         "and a big blanket.",
         "It was the first day of [summer|the holidays], and {h} wanted to go to the beach with "
         "{f}."),
        ("But then [dark clouds came|the sky turned gray|the wind began to blow]. [Drip, drop|"
         "Splash|Plop, plop]! It began to rain.",
         "But when they were ready to go, it [started to rain|rained and rained]."),
        ("\"[Now everything is ruined|This is not fair|What a bad day]!\" said {h}. {h.He} [sat "
         "by the window|looked out of the window|was very sad].",
         "{h} was [angry with the rain|so sad]. \"[Go away, rain!|Why did it have to rain "
         "today?]\" {h.he} [said|cried]."),
        ("\"[We can have fun at home|Rain is good for the flowers|We can still have fun],\" said "
         "{h.his} {p}. \"[I have an idea|Let me show you something|Let us think].\"",
         "{f} had an idea. \"We can [have our picnic inside|build a tent from blankets|go out and "
         "jump in the puddles]!\" {f.he} said."),
        ("They [put the blanket on the floor|built a tent out of chairs and sheets|made a house "
         "under the table], and they ate their {food} there. [They told stories|They sang songs|"
         "They played a game], and they listened to the rain.",
         "They put on their boots and ran outside. They jumped in every puddle. Splash, splash! "
         "They got very [wet|muddy], but they [laughed and laughed|did not care]."),
        ("Soon the rain stopped and the sun came out. [There was a rainbow in the sky|A big "
         "rainbow stood over {place}]. \"[Look at the colors|How beautiful|Look, a rainbow]!\" "
         "said {h}.",
         "In the evening, the clouds went away, and {h} saw [the moon|the first star]."),
        ("\"[That was the best picnic ever|I like rainy days now|This was a good day after all],"
         "\" {h} said.",
         "{h} hugged {h.his} {p}. [Even a rainy day can be a good day|It was a good day after "
         "all]."),
    ),
)

JOURNEY = Plot(
    "journey",
    "[a little {h.kind} who wants to see {goal}|a {h.kind} named {h} on a journey|{h} and {f}]",
    (
        ("{h} had heard many stories about {goal}. \"I want to see {goal},\" said {h}.",
         "Every night, {h} dreamed of {goal}. \"[One day I will go there|I must see it with my own "
         "eyes],\" {h.he} said."),
        ("\"The way is long,\" said {h.his} {p}. \"[Be careful|Do not forget to come home|Be kind "
         "to everyone you meet].\"",
         "So one {weather} morning, {h} [packed some {fruit}|said goodbye to {h.his} {p}] and "
         "[set out|started to walk|went on {h.his} way]."),
        ("{h.He} walked [over the hills|through the woods|along the river] for a long time. There "
         "{h.he} met a {f.kind} named {f}. \"[Where are you going|What are you doing here]?\" "
         "asked {f}.",
         "On the way, {h.he} saw a {f.kind} who was [stuck in a bush|looking for food|sitting "
         "alone]. The {f.kind}'s name was {f}."),
        ("\"I am going to see {goal},\" said {h}. \"[Do you want to come with me|Will you come "
         "along]?\" \"[Yes, I would like that|I have always wanted to see it],\" said {f}.",
         "{h} [helped {f}|shared {h.his} {fruit} with {f}]. \"Thank you,\" said {f}. \"May I come "
         "with you?\" \"[Of course|Yes, please come],\" said {h}."),
        ("Soon they came to a [wide|deep|fast] river. There was no bridge. \"[How can we get "
         "across|What can we do now]?\" asked {h}. {f} [found a big log|saw a row of stones|found "
         "a little boat], and they crossed the river together.",
         "Then it got dark, and they [lost their way|did not know where to go]. \"[Look at the "
         "stars|Listen|Stay close to me],\" said {f}. \"I know the way.\"",
         "Then the wind blew hard, and it was very cold. They found a [dry cave|hollow tree] and "
         "slept there, close together."),
        ("At last, they [came to the top of a hill|walked out of the woods|climbed the last hill]"
         ", and there was {goal}! It was [more beautiful than in the stories|bigger than they had "
         "thought|so beautiful that they could not speak].",
         "The next [morning|evening], they saw it. \"There is {goal}!\" cried {h}. [They sat down "
         "and looked for a long time|They danced with joy]."),
        ("\"[It is good to see it with a friend|Thank you for coming with me],\" said {h}.",
         "Then {h} thought of {h.his} {p}. \"[I miss my home|Now I want to go home],\" {h.he} "
         "said, and they walked back together."),
        ("When {h} came home, {h.his} {p} gave {h.him} [a warm hug|some {food} and a hug]. \"[Tell "
         "me everything|I am so glad you are back],\" said {h.his} {p}.",
         "And from then on, {h} and {f} [went on many journeys|were best friends|saw each other "
         "every day].",
         "{h} learned that the best part of a journey is [a good friend|coming home]."),
    ),
    heroes="animal",
)

RACE = Plot(
    "race",
    "[a race|{h} and {f}, who run a race|a {h.kind} who stops to help]",
    (
        ("Every [summer|year|spring], there was a big race {place.at}. [Everyone wanted to win|The "
         "winner got {o.a}|The first prize was {o.a}].",
         "\"I am the fastest of all,\" said {f}. \"[Nobody can beat me|I always win].\" \"[Let us "
         "have a race|We will see],\" said {h}."),
        ("{h} was not very fast, but {h.he} [practiced every day|wanted to try|never gave up].",
         "{h} ran every morning and every evening. {h.He} wanted to win [this time|very much]."),
        ("\"[Ready, set, go|One, two, three, go]!\" called {w}, and they all ran. {f} was in "
         "front, and {h} was [right behind {f.him}|far behind|close behind].",
         "The race began. They ran {route}. Soon {h} was [second|third|tired], but {h.he} ran on."),
        ("Then {f} [fell over a stone|fell over a root|slipped in the mud]. \"Ouch! [My foot "
         "hurts|I cannot get up]!\" cried {f}.",
         "Suddenly, {f} stopped. {f.He} had hurt {f.his} leg and could not run."),
        ("{h} could run past and win. But {h.he} stopped. \"[Let me help you|Take my hand|Hold on "
         "to me],\" said {h}.",
         "{h} looked at the [finish|end of the path]. Then {h.he} looked at {f}. {h.He} [turned "
         "back|went to help] at once."),
        ("Together they walked to the end. They came in last, but everybody [cheered|clapped].",
         "Slowly they walked on, side by side. When they came to the end, [everyone clapped|all "
         "of them cheered]."),
        ("\"[You are the real winner|A kind heart is better than fast feet],\" said {w}.",
         "\"[Why did you stop?|You could have won,]\" said {f}. \"[A friend is more important "
         "than a race|I wanted to help you],\" said {h}."),
        ("And {h} [got a special prize for being kind|was very happy].",
         "After that, {h} and {f} [always ran together|became good friends].",
         ""),
    ),
    heroes="any",
)

DISCOVERY = Plot(
    "discovery",
    "[an old box|a treasure in the {place.noun}|{h} and {f}, who find an old map]",
    (
        ("One [rainy|windy|quiet] day, {h} and {f} were playing in the attic. There they found an "
         "old [box|chest|book], and in it was a map.",
         "{h} and {f} were digging {place.at}. Suddenly, they hit something hard. It was an old "
         "box, and in the box was a map."),
        ("\"[It is a treasure map|Look, there is a big X on it|This is our garden],\" said {h}. "
         "\"[Let us find the treasure|Let us follow it]!\" said {f}.",
         "\"[What is this|What does it show]?\" asked {f}. \"It shows the way to a treasure,\" "
         "{h} [said|whispered]."),
        ("First they walked [ten|twenty|fifty] steps to the big tree. Then they turned left and "
         "went [over the little bridge|past the well|around the pond].",
         "They followed the map [through the yard|over the fence|down the path]. {h} [carried the "
         "map|went first], and {f} [counted the steps|carried a small lamp]."),
        ("But the path was blocked by a big [stone|log|bush]. \"[Now we cannot go on,|What should "
         "we do?]\" said {f}. \"[We can push it together|We can climb over it],\" said {h}.",
         "Then they heard a noise {outdoor}. They held hands. But it was only a {pet.kind}, and "
         "they laughed."),
        ("At last, they came to the X. They [dug and dug|dug a deep hole|looked under the stones]"
         ", and there was a {colour} [box|bag|tin].",
         "At the end of the path stood an old tree with a hole in it. {h} put {h.his} hand inside "
         "and found a {colour} [box|bag|tin]."),
        ("{h} opened it [slowly|with shaking hands]. There was no gold. There was {o.a}, {q.a}, "
         "and a letter.",
         "They opened it together. Inside there was {o.a} and a letter."),
        ("The letter said, \"[Dear finder, I hid my favorite things here when I was little|Now "
         "this treasure is yours. Take good care of it|A treasure is nice, but a friend to find "
         "it with is better].\"",
         "The letter was from {h}'s {p}! {p.He} had hidden the box many years ago, when {p.he} "
         "was a child."),
        ("{h} and {f} [put their own toys in the box too|took turns with the {o.noun}|hid the box "
         "again for somebody else to find].",
         "They ran home to tell {h.his} {p} [everything|about the treasure], and {p.he} smiled "
         "[for a long time|and said nothing|and winked].",
         "It was the [best|most exciting] day of the whole year."),
    ),
)

HELPING = Plot(
    "helping a neighbour",
    "[helping others|{h}, who helps {n}|a kind {h.kind}]",
    (
        ("Next door to {h} lived {n}. {n.He} was [very old|a little sick|all alone], and {n.his} "
         "[house was quiet|garden was full of weeds|legs were weak].",
         "One {weather} [day|morning], {h} saw {n} on the street. {n.He} was carrying a [big|"
         "heavy] bag full of {fruit}."),
        ("{n} [dropped something|looked very tired|had to stop and sit down]. \"[Can I help you|"
         "May I help you|Are you all right]?\" asked {h}.",
         "\"{n.He} needs help,\" {h} said to {h.his} {p}. \"[That is kind of you|Then go and help],"
         "\" said {h.his} {p}."),
        ("{h} [carried the bag|cleaned the windows|swept the floor|watered the plants] and [fed "
         "the cat|picked up the leaves|brought in the wood]. It was hard work, but {h} did not "
         "[stop|mind].",
         "{h} called {f}, and together they [worked all morning|cleaned the garden|painted the "
         "fence {colour}]."),
        ("\"[You are so kind,|What would I do without you?|Thank you, dear,]\" said {n}. {n.He} "
         "gave {h.him} [some {fruit}|a plate of {food}|a warm smile].",
         "When the work was done, {n} brought {food}, and they all sat down to eat."),
        ("Then {n} told {h.him} a story about the [old days|sea|time when {n.he} was young]. {h} "
         "[listened with big eyes|asked many questions|loved the story].",
         "On the wall, {h} saw {o.a}. \"[It was mine when I was little|You may have it],\" said "
         "{n}."),
        ("The next week, {h} [fell off {h.his} bike|lost {h.his} key|needed help with {h.his} "
         "homework], and this time, it was {n} who helped {h.him}.",
         "After that, {h} visited {n} every [day|week|Sunday].",
         ""),
        ("{h} learned that [helping others makes you happy too|a little help can mean a lot|"
         "kindness always comes back].",
         "And {n} was never lonely again.",
         "That night, {h} felt [warm inside|very happy] when {h.he} went to bed."),
    ),
)

ANIMAL_SHARE = Plot(
    "winter food",
    "[a hungry winter|a {h.kind} who shares {h.his} {fruit}|{h} and {f} in winter]",
    (
        ("It was autumn, and the leaves [were red and yellow|fell from the trees]. {h} worked "
         "every day and collected {fruit} for the winter.",
         "In summer, {h} found many {fruit} and [put them in a safe hole|hid them under a big "
         "tree]."),
        ("{h.His} friend {f} the {f.kind} [only played|slept in the sun|sang all day]. \"[Winter "
         "is far away|There is still time|Come and play with me],\" said {f}.",
         "\"[Why do you work so hard|Why do you not rest]?\" asked {f} the {f.kind}. \"Winter is "
         "coming,\" said {h}."),
        ("Then the snow came. It was [white everywhere|very cold|cold and quiet]. {f} had nothing "
         "to eat.",
         "Soon winter came, and everything was covered in snow. {f} was [cold|hungry and cold|very "
         "hungry]."),
        ("{f} [knocked|came and knocked] on {h}'s door. \"[Please help me,|I am so hungry,|Can you "
         "give me a little food?]\" said {f}.",
         "One evening, {h} found {f} in the snow. {f.He} was [shaking|too weak to walk]."),
        ("{h} thought about it. There was [not much|only a little] food. But {f} was a friend.",
         "\"I told you that winter was coming,\" said {h}. Then {h.he} saw how [sad|cold|thin] {f} "
         "was."),
        ("\"Come in,\" said {h}. \"[There is enough for two|We will share|You can stay with me]"
         ".\" They sat by the fire and ate {food}.",
         "So {h} [opened the door|let {f} in] and gave {f.him} half of the {fruit}."),
        ("All winter long, {f} [sang songs|told stories|made {h} laugh], and the cold days were "
         "[not so long anymore|full of joy].",
         "\"Next year I will help you,\" said {f}. And when summer came, {f.he} did."),
        ("And the next autumn, they [worked together|collected {fruit} together], and nobody was "
         "hungry.",
         "{h} learned that food tastes best when you [share it|eat it with a friend].",
         ""),
    ),
    heroes="animal",
)

PLOTS = (RESCUE, GARDEN, RAIN, JOURNEY, RACE, DISCOVERY, HELPING, ANIMAL_SHARE)
