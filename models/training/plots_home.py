# SPDX-License-Identifier: Apache-2.0
"""Plots that happen at home or with friends: things lost, shared, broken, made and learned.

A beat is a tuple of alternatives, of which one is told; an empty alternative skips the beat.
Slots: h hero, f friend, p grown-up of the hero's family, n neighbour, w person with a trade,
pet a small animal, o and q things; the rest are plain words (see stories.cast).
"""

from __future__ import annotations

from plot import Plot

LOST_TOY = Plot(
    "lost toy",
    "[a lost {o.noun}|a {h.kind} who loses {o.a}|{h} and the lost {o.noun}]",
    (
        ("{h} had {o.a}. [{h.He} took it everywhere|{h.He} loved it very much|It was {h.his} "
         "favorite toy in the whole world|It was a present from {h.his} {p}].",
         "{h.His} favorite thing was {o.a}. [Every night, it lay next to {h.his} pillow|{h.He} "
         "played with it every day|{h.He} never went out without it]."),
        ("One {weather} [day|morning|afternoon], {h} [could not find|looked for|wanted to play "
         "with] the {o.noun}[, but it was gone|, and it was not there].",
         "But one [day|morning|evening], the {o.noun} was [gone|not in its place|missing].",
         "One [day|morning], {h} woke up and saw that the {o.noun} was [gone|missing]."),
        ("{h} looked {indoor}, but it was not there. {h.He} looked {indoor2}, but it was not "
         "there either.",
         "First {h.he} looked {indoor}. Then {h.he} looked {indoor2}. [There was no {o.noun} "
         "anywhere|{h.He} found an old sock, but no {o.noun}|All {h.he} found was {q.a}].",
         "{h.He} searched {indoor} and {indoor2}, but {h.he} [found nothing|could not find it|"
         "only found {q.a}]."),
        ("{h} [felt very sad|wanted to cry|sat down and cried|did not know what to do].",
         "\"Oh no! [Where is my {o.noun}|Where can it be]?\" [cried {h}|{h} cried|asked {h}]."),
        ("{h.His} {p} came in and asked, \"[What is wrong|Why are you so sad|What happened], "
         "{h}?\" \"I [lost|cannot find] my {o.noun},\" [{h} said|said {h}|{h} answered].",
         "Then {f} came to [play|visit]. \"Do not [worry|cry|be sad],\" said {f}. \"I will help "
         "you [look for it|find it].\"",
         "{h.He} asked {h.his} {p} for help. \"[Let us look together|We will find it together|"
         "Think about where you had it last],\" said {h.his} {p}."),
        ("Together they went outside and looked {outdoor}. [And there it was|There it was|"
         "Something {colour} was lying there]! [The {o.noun} had fallen out of {h.his} bag|The "
         "wind had blown it there|The dog had carried it there].",
         "They looked everywhere. At last, they found the {o.noun} {outdoor}. [It was a bit "
         "dirty, but it was not broken|It was wet, but it was safe|A {pet.kind} was sleeping on "
         "it].",
         "They heard a funny sound {outdoor}. It was a {pet.kind}, and it was [playing with|"
         "sitting on|sleeping next to] the {o.noun}!"),
        ("\"[Thank you|Thank you so much|Hooray]!\" said {h}, and {h.he} [hugged the {o.noun} "
         "tightly|gave a big hug to everyone|jumped up and down].",
         "{h} was so [happy|glad] that {h.he} [danced around the room|laughed out loud|began to "
         "sing]."),
        ("From that day on, {h} always put {h.his} [toys|things] back in [their place|the right "
         "place].",
         "That night, {h} slept with the {o.noun} in {h.his} arms.",
         "After that, {h} [took better care of|was more careful with|never forgot] {h.his} "
         "{o.noun}.",
         ""),
    ),
)

SHARING = Plot(
    "sharing",
    "[sharing|two friends who both want {o.a}|{h} and {f} and {o.a}]",
    (
        ("{h} and {f} were [good friends|best friends|playing {place.at}].",
         "{h} had a friend [named|called] {f}. They [played together every day|liked to play "
         "{place.at}]."),
        ("One {weather} [day|morning|afternoon], {h} found {o.a} {outdoor}. \"[Look|See], {o.a}!\" "
         "{h.he} said.",
         "One [day|afternoon], {h} brought {o.a} to {place}. [It was very pretty|It "
         "was brand new|Everyone wanted to see it].",
         "One day, there was {o.a} in the toy box, and both of them saw it at the same time."),
        ("\"[I want to play with it,|Can I have a turn?|May I play with it too?]\" [said|cried] "
         "{f}. \"No, it is mine!\" said {h}.",
         "{f} wanted to play with the {o.noun} too, but {h} [did not want to share|held it tight|"
         "said no]."),
        ("{f} [was sad|was angry|started to cry|walked away]. {h} [played alone|sat down alone], "
         "but it was [not much fun|no fun at all|boring].",
         "They both pulled at the {o.noun}. [They pulled and pulled|They pulled harder and harder]"
         ", and then they both fell down.",
         "Soon they were both [angry|upset], and nobody was having any fun."),
        ("{h.His} {p} saw [it|them] and said, \"[Sharing makes playing more fun|A toy is more fun "
         "with a friend|You can take turns|If you share, you can both be happy].\"",
         "{n} was watching. \"[Why do you not take turns|Why do you not play together]?\" asked "
         "{n}.",
         "Then {h} looked at {f}'s sad face and thought, \"[I do not want my friend to be sad|"
         "That was not kind of me].\""),
        ("{h} thought about it. \"I am sorry, {f},\" {h.he} said. \"[You can play with it first|"
         "Let us play with it together|Here, it is your turn].\"",
         "{h} [nodded|thought for a moment] and gave the {o.noun} to {f}. \"[You can have the "
         "first turn|Let us share it],\" {h.he} said."),
        ("{f} smiled [and said, \"Thank you, {h}.\"|and took {h.his} hand.|again.] They played "
         "together until [dinner|it was dark|the sun went down].",
         "They took turns all [day|afternoon|day long], and they [laughed a lot|had so much fun|"
         "were happy]."),
        ("{h} learned that [sharing is fun|sharing is better than fighting|a good friend is "
         "better than any toy].",
         "From then on, {h} and {f} shared [everything|all their toys|their toys every day].",
         "And the two friends never fought about the {o.noun} again.",
         ""),
    ),
)

BROKEN = Plot(
    "telling the truth",
    "[telling the truth|a broken {broken}|a {h.kind} who breaks a {broken}]",
    (
        ("{h.His} {p} had a beautiful {broken}. It stood [on the table|on a high shelf|by the "
         "window]. \"Please be careful with it,\" {h.his} {p} always said.",
         "There was a {colour} {broken} in the living room. {h.His} {p} loved it very much."),
        ("One [rainy|cold|quiet] [day|morning|afternoon], {h} was playing with {o.a} in the "
         "house. {h.He} [ran around the table|jumped too high|was not careful], and crash! The "
         "{broken} fell [down|on the floor] and broke.",
         "One day, {h} wanted to [look at|touch|hold] the {broken}. {h.He} climbed on a chair, "
         "but {h.he} slipped. Crash! The {broken} fell and broke into [pieces|many pieces|two "
         "pieces]."),
        ("{h} was [scared|afraid|very worried]. \"[What will {p.Name} say?|What should I do?|"
         "Now I am in trouble!]\" {h.he} thought. {h.He} hid the pieces {indoor}.",
         "{h}'s heart beat fast. {h.He} [wanted to run away|wanted to hide|did not know what to "
         "do]."),
        ("Soon {h.his} {p} came home and asked, \"Where is the {broken}?\" {h} [looked at the "
         "floor|was quiet|turned red].",
         "At dinner, {h} could not eat {h.his} {food}. [{h.His} tummy hurt|{h.He} felt bad]. "
         "\"What is wrong?\" asked {h.his} {p}.",
         "\"You can blame the [cat|dog|wind],\" said a little voice in {h.his} head. But {h} knew "
         "that it was wrong to lie."),
        ("{h} took a deep breath. \"I broke the {broken},\" {h.he} said. \"It was an accident. I "
         "am [so|very] sorry.\"",
         "Then {h} told the truth. \"[It was me|I did it]. I broke the {broken}, and I am sorry,\""
         " {h.he} said [softly|quietly|in a small voice]."),
        ("{h.His} {p} was [sad for a moment|quiet for a moment|a little sad]. Then {p.he} smiled "
         "and said, \"[Thank you for telling the truth|I am proud of you, because you were "
         "honest|A {broken} can be fixed, but the truth is important].\"",
         "{h.His} {p} gave {h.him} a hug. \"[I am not angry|I love you more than any {broken}],\" "
         "{p.he} said. \"Thank you for [being honest|telling me the truth].\""),
        ("Together they [glued the pieces|picked up the pieces and glued them|fixed the {broken}]"
         ". [It did not look new, but it was still pretty|It looked almost new|Now it had a "
         "funny line, but they liked it].",
         "Then they cleaned the floor together, and {h} [felt much better|smiled again]."),
        ("{h} learned that it is [always better|good|best] to tell the truth.",
         "After that, {h} [never played with {o.a} near the table again|was always careful in the "
         "house|always told the truth].",
         ""),
    ),
)

BIRTHDAY = Plot(
    "birthday surprise",
    "[a birthday|a birthday surprise for {f}|{h} and a birthday present]",
    (
        ("It was almost {f}'s birthday. {h} wanted to [give {f} a surprise|find the best present|"
         "make something special].",
         "Tomorrow was {f}'s birthday, and {h} [did not have a present|still had no present|was "
         "very excited]."),
        ("{h} had no money. \"[What can I give my friend|What would {f} like]?\" {h.he} asked "
         "{h.his} {p}.",
         "{h.He} went to the shop, but everything [cost too much|was too expensive]. {h.He} had "
         "only [two|three|five] coins."),
        ("\"[The best presents come from the heart,|You can make something,|Why do you not make a "
         "present?]\" said {h.his} {p}.",
         "Then {h} had [an idea|a good idea|a wonderful idea]. \"I will [make|bake] a present!\" "
         "{h.he} said."),
        ("So {h} took [paper and paint|some wood and glue|paper, string, and scissors] and made "
         "{o.a}. It took [all day|a long time|the whole afternoon], and {h.his} hands got "
         "[dirty|sticky|very messy].",
         "So {h} and {h.his} {p} [baked|made] a big cake. They mixed flour, eggs, and sugar. But "
         "oh no! There was no [milk|butter] left. {h} ran to {n} and asked for some, and {n} "
         "[gladly helped|gave {h.him} a full cup|said, \"Of course!\"].",
         "{h} drew a picture of {f} [and {h.himself}|with a {pet.kind}] {place.at}. {h.He} used "
         "every color in the box."),
        ("The next day, {h} went to {f}'s [house|home|party]. {h.His} heart [beat fast|was full of"
         " joy]. \"Happy birthday, {f}!\" {h.he} [said|cried|called].",
         "The next [day|morning], everyone came to the party. There were balloons, {food}, and "
         "[many games|lots of music|funny hats]. {h} gave {f} the present."),
        ("{f} opened it and [smiled from ear to ear|clapped with joy|laughed happily]. \"[This is "
         "the best present of all|I love it|It is perfect]!\" said {f}.",
         "{f}'s eyes grew big. \"Did you make this for me? [It is beautiful|I love it|Thank you "
         "so much]!\" {f.he} said."),
        ("They [ate {food}|played games|danced and sang] until it was [late|dark].",
         "Then they all [sang a song|ate cake|played hide and seek], and everyone was [happy|"
         "very happy]."),
        ("{h} was happy too, because [giving is as nice as getting|{h.he} had made {h.his} friend "
         "happy|a present from the heart is the best one].",
         "That night, {h} went to bed with a big smile.",
         ""),
    ),
)

LEARNING = Plot(
    "learning",
    "[learning to {skill}|a {h.kind} who wants to {skill}|{h}, who never gives up]",
    (
        ("{h} wanted to [learn to {skill}|{skill}]. [All {h.his} friends could do it|{f} could do "
         "it very well|It looked so easy].",
         "More than anything, {h} wanted to {skill}. But {h.he} did not know how."),
        ("One {weather} [day|morning], {h.he} tried for the first time. [It was hard|It was not "
         "easy at all|It was very hard], and {h.he} [fell down|made many mistakes|could not do "
         "it].",
         "{h.He} tried once. {h.He} tried twice. [Both times, it went wrong|But it did not work]."),
        ("\"I will never [learn it|be able to {skill}]!\" {h} said [sadly|and began to cry|with "
         "tears in {h.his} eyes].",
         "Some of the others laughed, and {h} [felt very small|ran home|wanted to give up]."),
        ("{h.His} {p} sat down next to {h.him}. \"[Nobody can do it the first time|When I was "
         "little, I could not do it either|Everyone makes mistakes],\" {p.he} said. \"[Try "
         "again|Keep trying|Just practice a little every day].\"",
         "\"Do not give up,\" said {f}. \"[I will show you|I will help you|I fell many times "
         "too]. [Take it slowly|Try again].\""),
        ("So {h} practiced [every day|every morning|day after day]. [On Monday it was hard. On "
         "Tuesday it was a little better|Each day, it got a little easier|Some days were good, "
         "and some days were bad].",
         "{h} tried again and again. [{h.He} did not stop|{h.He} was tired, but {h.he} did not "
         "stop]. Slowly, {h.he} got better."),
        ("Then, one [day|morning|afternoon], it [happened|worked]! \"[Look|Look at me|I can do "
         "it]!\" {h} [cried|shouted]. \"I can {skill}!\"",
         "And one {weather} day, {h} [did it|could do it] all alone. [{h.He} could not believe it|"
         "{h.His} face was full of joy]."),
        ("{h.His} {p} [clapped|cheered|smiled] and said, \"[I am so proud of you|I knew you could "
         "do it|Well done, {h}]!\"",
         "{f} cheered [loudly|and clapped], and {h} [felt ten feet tall|was very proud]."),
        ("{h} learned that [if you keep trying, you can do hard things|practice makes everything "
         "easier|it is all right to fail and try again].",
         "After that, {h} taught {f2} how to {skill} too.",
         ""),
    ),
)

NEW_FRIEND = Plot(
    "new friend",
    "[a new friend|{h}, who makes a new friend|a lonely {f.kind}]",
    (
        ("One [day|morning], a new {f.kind} came to the [school|village|town]. {f.His} name was "
         "{f}. {f.He} [was very shy|did not know anyone|stood alone by the wall].",
         "There was a new {f.kind} in the [class|house next door]. {f.His} name was {f}, and "
         "{f.he} [did not talk much|looked sad|was all alone]."),
        ("{h} saw {f} {place.at}. [The other children were playing, but {f} only watched|{f.He} "
         "sat {outdoor} and looked at the ground|Nobody was playing with {f.him}].",
         "At lunch, {f} sat alone and ate {f.his} {food}. {h} [looked at {f.him}|felt sorry for "
         "{f.him}]."),
        ("\"[Why is {f.he} alone|Why does nobody play with {f.him}]?\" {h} asked {h.his} {p}. "
         "\"[Maybe {f.he} is shy|Maybe {f.he} needs a friend|Somebody has to say hello first],\" "
         "{h.his} {p} said.",
         "{h} remembered how it felt to be [alone|new]. \"[I will say hello|I will be kind],\" "
         "{h.he} thought.",
         "{h} was a little shy too, but {h.he} [took a deep breath|was brave] and walked over."),
        ("\"Hello, my name is {h},\" said {h}. \"Do you want to [play with me|see my {o.noun}|"
         "share my {food}|fly a kite with me]?\"",
         "{h.He} took {h.his} {o.noun} and went to {f}. \"[Would you like to play|Do you want to "
         "try it]?\" {h.he} asked."),
        ("{f} looked up and smiled. \"Yes, please,\" {f.he} [whispered|said softly|said].",
         "At first {f} said nothing. Then {f.he} [nodded|smiled a little] and said, \"[I would "
         "like that|Yes, I would love to].\""),
        ("They [played tag|built a tower|drew pictures|played with the {o.noun}] and [laughed a "
         "lot|talked about many things|told each other jokes]. {f} knew [many games|a funny song|"
         "a lot about birds].",
         "{f} showed {h} how to [fold a paper boat|whistle|stand on one leg|draw a {pet.kind}], "
         "and {h} showed {f} [the best tree to climb|the way to the pond|a secret path]."),
        ("When it was time to go home, {f} said, \"[This was the best day|Thank you for being my "
         "friend|I hope you will come again tomorrow].\"",
         "The next day, [they sat together|they met again {place.at}], and {f} was not [sad|shy|"
         "lonely] anymore."),
        ("And so {h} and {f} became [good|best|very good] friends.",
         "{h} was glad that {h.he} had been [kind|brave]. [One small hello can make a big "
         "difference|It is easy to make a friend if you are kind].",
         ""),
    ),
)

BEDTIME = Plot(
    "night noise",
    "[a noise in the night|a {h.kind} who cannot sleep|{h}, who is afraid of the dark]",
    (
        ("One [dark|windy|cold|quiet] night, {h} was in bed, but {h.he} could not sleep.",
         "It was [late|very late], and the [moon was high|stars were out]. {h} lay in {h.his} bed "
         "with {h.his} {o.noun}."),
        ("[Tap, tap, tap|Scratch, scratch|Bump, bump|Creak, creak]! There was a [strange|funny|"
         "scary] [noise|sound] {indoor}.",
         "Then {h.he} heard a noise {indoor}. [Tap, tap, tap|Scratch, scratch|"
         "Bump, bump]!"),
        ("\"[Is it a monster|Who is there|What was that]?\" {h} whispered. {h.He} [pulled the "
         "blanket over {h.his} head|held the {o.noun} tightly|did not dare to move].",
         "{h}'s heart beat [fast|very fast]. [Maybe it was a monster|Maybe it was a ghost|{h.He} "
         "was very scared]."),
        ("\"{p.Name}!\" {h} called. {h.His} {p} came with a [little lamp|candle|light]. \"What is "
         "it, {h}?\" \"There is something {indoor},\" said {h}.",
         "{h.He} wanted to call {h.his} {p}, but then {h.he} thought, \"[I can be brave|I will "
         "look for myself].\" {h.He} took a [light|lamp] and got out of bed.",
         ""),
        ("[Slowly|Very slowly|Step by step], {h.he} went to look. [{h.He} opened the door|{h.He} "
         "looked around], and what did {h.he} see? It was only [the wind in the old tree|a branch at the "
         "window|a small {pet.kind}|the {pet.kind}, who wanted to come in]!",
         "There was no monster at all. It was [only the {pet.kind}|just a branch at the window|"
         "just the rain on the roof|only a little {pet.kind} who was cold]."),
        ("{h} [laughed|had to laugh|began to laugh]. \"[You are not scary at all|So that was the "
         "noise|It was not a monster],\" {h.he} said.",
         "\"[Things often look scary in the dark|The dark is only the day with its eyes closed|"
         "The night has many sounds],\" said {h.his} {p}, and {h} [smiled|nodded]."),
        ("{h.His} {p} [told {h.him} a story|sang a soft song|left a small light on|gave {h.him} a "
         "kiss], and soon {h} [was asleep|fell asleep|closed {h.his} eyes].",
         "{h} went back to bed. [{h.He} was not afraid anymore|Now {h.he} felt safe and warm]."),
        ("After that night, {h} was not afraid of [the dark|strange noises] anymore.",
         "And {h.he} dreamed of [the moon|{place} and {o.a}|a {pet.kind} with {o.a}].",
         ""),
    ),
)

PLOTS = (LOST_TOY, SHARING, BROKEN, BIRTHDAY, LEARNING, NEW_FRIEND, BEDTIME)
