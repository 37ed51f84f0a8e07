"""Trains the zstd dictionary that every stored item and record is compressed with.

    python benchmarks/train_dictionary.py              measure the dictionary in the package
    python benchmarks/train_dictionary.py --write      train it anew and replace the file

The samples are what `seal.pack` really gets: messages as `encoder.py` cuts and serialises them,
bodies of checkpoint records, rows of pending writes. Their text is made here, from the sentences
and tables below and a seed, so the same versions of the libraries give the same dictionary.

**A released dictionary is for ever**: what is stored was compressed with it and cannot be read
without it. A better one needs a new packing code in `seal.py` and a second file; never replace the
file of a release.
"""

# ruff: noqa: E501 - the tables have one entry a line
from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import random
import re
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import ormsgpack
import xxhash
import zstandard
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Interrupt, Send

from langgraph_durable._core import dictionary
from langgraph_durable._core.serde import ExactSerializer

SIZE = 16 << 10
SEED = 20261118
SAMPLES = 9_000
WRITTEN = 0.2  # the share of PARAGRAPHS in prose
SEGMENT, GRAM = 300, 8  # of the COVER algorithm; the best of a search over 24 pairs, 2026-11-18

serde = ExactSerializer()


def item(value: Any) -> bytes:
    """Bytes of one element of a channel: `encoder.py` puts a byte for the tag "x1" before them."""
    tag, data = serde.dumps_typed(value)
    assert tag == "x1"
    return b"\0" + data


# --- words ---
# A sentence holds {one|of|these}, and <names> that stand for a line of this table.

WORDS = {
    "thing": "account|address|agent|answer|article|budget|calendar|chart|city|client|code|column"
    "|company|contract|course|customer|data|database|day|deadline|delivery|design|device|document"
    "|email|error|event|example|feature|file|flight|folder|form|function|group|history|hotel|idea"
    "|image|index|invoice|issue|item|job|language|letter|library|line|list|machine|manager|market"
    "|meeting|message|method|model|module|month|name|network|note|number|office|option|order|page"
    "|package|parameter|patient|payment|person|phone|plan|policy|price|problem|process|product"
    "|profile|program|project|query|question|reason|record|region|release|report|request|result"
    "|review|room|row|rule|schedule|school|search|section|sentence|server|service|session|setting"
    "|site|source|state|step|story|student|subject|system|table|task|team|test|text|ticket|time"
    "|tool|topic|train|transfer|update|user|value|version|video|week|window|word|year",
    "things": "accounts|answers|articles|cases|changes|columns|companies|costs|countries|customers"
    "|days|details|documents|emails|errors|events|examples|features|files|hours|ideas|images"
    "|instructions|issues|items|lines|links|messages|minutes|models|months|names|notes|numbers"
    "|options|orders|pages|parts|people|places|points|prices|problems|products|questions|reasons"
    "|records|reports|requests|requirements|results|rows|rules|sections|services|settings|sources"
    "|steps|students|tasks|tests|things|tickets|times|tools|users|values|versions|ways|words|years",
    "kind": "available|average|basic|best|better|big|certain|clear|common|complete|correct|current"
    "|different|direct|early|easy|entire|exact|existing|expected|extra|fast|final|first|following"
    "|free|full|general|good|great|high|important|initial|internal|large|last|latest|local|long"
    "|low|main|major|missing|most recent|necessary|new|next|normal|old|only|open|original|other"
    "|possible|previous|private|public|quick|real|relevant|right|same|second|short|similar|simple"
    "|single|small|special|specific|standard|strong|third|total|typical|unique|usual|valid|whole",
    "do": "add|allow|apply|ask for|avoid|build|buy|call|change|check|choose|clean up|collect"
    "|compare|confirm|consider|contact|continue with|convert|copy|create|define|delete|describe"
    "|develop|discuss|download|explain|find|finish|fix|follow|get|give|handle|help with|identify"
    "|import|improve|include|increase|install|keep|learn about|leave|look at|make|manage|measure"
    "|move|need|open|plan|prepare|print|provide|read|receive|reduce|remove|replace|return|review"
    "|run|save|search for|see|select|send|set up|share|show|start with|stop|store|summarize"
    "|support|take|test|think about|try|understand|update|use|verify|wait for|work on|write",
    "doing": "adding|asking|booking|building|calling|changing|checking|comparing|creating|deleting"
    "|finding|fixing|getting|going|having|keeping|looking at|making|moving|opening|planning"
    "|processing|providing|reading|removing|returning|running|searching|sending|setting|showing"
    "|starting|taking|testing|trying|updating|using|waiting for|working on|writing",
    "done": "added|applied|asked|built|called|changed|checked|closed|completed|confirmed|created"
    "|defined|deleted|done|expected|finished|fixed|found|given|included|known|left|listed|made"
    "|moved|needed|opened|paid|planned|processed|provided|received|removed|replaced|required"
    "|returned|saved|selected|sent|set|shown|started|stored|taken|tested|updated|used|written",
    "how": "again|already|also|always|automatically|carefully|certainly|clearly|completely"
    "|correctly|currently|directly|easily|especially|even|eventually|exactly|finally|first"
    "|generally|immediately|instead|later|likely|mainly|maybe|mostly|never|now|often|only|perhaps"
    "|possibly|probably|quickly|quite|rather|really|recently|simply|slightly|slowly|sometimes|soon"
    "|still|successfully|then|together|too|usually|very|well|yet",
    "who": "I|you|we|they|he|she|the team|the user|our customers|many people|the company|everyone"
    "|someone|your manager|the author|the model|the server|the assistant",
    "of": "the|a|this|that|your|our|my|their|its|each|every|any|another|the same|one",
    "some": "some|many|most|all|several|a few|two|three|more|other|these|those|both|enough",
    "where": "in the|on the|at the|for the|from the|with the|to the|by the|of the|into the"
    "|about the|through the|between the|after the|before the|during the|without a|under the"
    "|over the|in a|for a|with a|as a|in this|of this|in your|for your|to your|from your",
    "when": "today|tomorrow|yesterday|now|right now|last week|next week|last month|this year"
    "|next month|every day|on Monday|on Tuesday|on Wednesday|on Thursday|on Friday|this morning"
    "|at the moment|in January|in March|in June|in September|in December|as soon as possible"
    "|by the end of the day|within 24 hours|in the last 30 days|for the first time",
    "so": "However, |Therefore, |In addition, |For example, |In general, |As a result, |Also, "
    "|Then |Finally, |First, |Second, |Instead, |Note that |Please note that |Of course, "
    "|In this case, |On the other hand, |To do this, |In other words, |Because of this, |If so, |"
    "|||||||",
    "join": " and| but| because| so that| if| when| while| which means that| although| since| that"
    "| before| after| until| where| as long as| in order to make sure that| even though| or",
    "amount": "1|2|3|4|5|10|12|15|20|24|25|30|50|60|75|100|120|200|250|365|500|1,000|2,500|10,000"
    "|$20|$49.99|$100|$1,250.00|5%|10%|15%|25%|50%|100%|0.5|1.5|2.0|3.14|2023|2024|2025|2026",
    "person": "Alice|Ben|Carla|Daniel|Elena|Frank|Grace|Hassan|Ines|James|Karen|Liam|Maria|Noah"
    "|Olivia|Peter|Rosa|Sarah|Thomas|Wei|Anna Schmidt|John Smith|Maria Garcia|David Chen",
    "place": "Amsterdam|Austin|Barcelona|Berlin|Boston|Chicago|Denver|Dublin|London|Los Angeles"
    "|Madrid|Melbourne|Mumbai|New York|Oslo|Paris|San Francisco|Seattle|Singapore|Sydney|Tokyo"
    "|Toronto|the United States|the United Kingdom|Germany|Canada|India|Europe|Asia",
    "topic": "weather|traffic|sales|revenue|machine learning|health|energy|climate|security|travel"
    "|insurance|marketing|software|hardware|finance|education|research|law|music|sport|food"
    "|history|science|art|customer support|supply chain|human resources|open source|the economy",
}

SENTENCES = """
{Hi|Hello|Hey|Good morning}, {can|could|would} you {please |}help me {with|to <do>} <of> <thing>?
{What|Which} is the {best|easiest|fastest|right|difference between the} <thing> {for|in|of} <topic>?
{What|How} {do|does|did|can|should|would} <who> <do> <of> <thing> <where> <thing>?
How {much|many|long|often|far} {is|are|does|do|will|would} <of> <thing> {take|cost|need|be}?
{Why|When|Where} {is|are|was|were|did|does} <of> <thing> {not |}{<done>|<doing>|there} <when>?
I {would like|want|need|have|am trying|was asked|plan} to <do> <of> <kind> <thing> <when>.
I {am|'m} {looking for|interested in|working on|having trouble with} <of> <thing> <where> <thing>.
{I've|I have|We have|You have} <how> <done> <of> <thing>,{ and| but|} it {is|was|does|did} not {work|<done>|what I expected}.
{Please|Could you|Can you|Make sure to|Remember to|Do not} <do> <of> <thing> <where> <thing> <when>.
{Sure|Of course|Certainly|Great question|Thanks|Thank you for your message}! {I can help you with that|Here is|Let me <do>|I'll <do>} <of> <thing>.
Here {is|are} {the|a|some} <kind> {<things>|summary of the <things>|list of <things>|overview} <where> <thing>:
I {found|have found|see|can see} <amount> <things> {that match|related to|about|for} {your request|your search|<topic>|the <thing>}.
{Based on|According to|As of|Given} the <kind> <thing>, <of> <thing> {is|was|will be|has been|should be} <done> <when>.
<so><of> <thing> {is|was|can be|must be|should be|will be|has been|may not be} <done> <where> <thing>.
<so><who> {can|could|should|will|would|may|might|must|need to|do not} <do> <some> <things> <where> <thing>.
<so>the <kind> <thing> {of|for|in|from|with} <of> <thing> {is|was|are|were|has|have} {<how> |not |}<done>.
<so><who> <do> <of> <thing><join> <of> <kind> <thing> {is|was|has been} <how> <done>.
If {you|it|there|the <thing>} {are|is|has|have|want|need} {not |no |any |}<kind> <things>, {you can|please|then|let me know and I will} <do> them.
It {is|was|would be|might be|looks like|seems that} {important|possible|not possible|best|a good idea} to <do> <of> <thing> {first|<when>|<how>}.
There {is|are|was|were|will be} {no|a|an|only one|some|many|<amount>} <kind> <things> <where> <thing>{, such as|:|, including|.}
{You|We|They} {can|will|should} {also |}<do> {it|this|them|that} by <doing> <of> <thing>.
{This|That|It|Which} {means|shows|suggests|happens because|is because|depends on} <of> <thing> {is|was|has} <kind>.
{One|Another|The first|The second|The last|The main} {of the|} {reason|option|step|problem|advantage} is {that|to} <of> <thing>.
The {total|average|current|expected|maximum|minimum} {price|number of <things>|amount|temperature|cost|value} {is|was} <amount>{ per <thing>|}.
{Would you like|Do you want|Shall I|Let me know if you want|Please let me know if you would like} me to <do> <of> <thing>?
{Let me know|Feel free to ask|Please tell me|I'm happy to help} if you {have any other questions|need anything else|need more details|have any further questions}!
{I'm sorry|I am sorry|Sorry|Unfortunately}, {but |}{I|we} {cannot|can't|could not|don't|do not} <do> <of> <thing> {because|since|as|at the moment} <of> <thing>.
{Let me|I will|I'll|Now I need to|First, let me|I should} {check|look at|search for|look up|think about|use the <thing> tool to find} <of> <kind> <thing>.
The {user|customer|human} {is asking|wants to know|asked|has asked|would like to know} {about|for|whether|how to <do>|why} <of> <thing>.
{You are|You're} a {helpful|friendly|professional|senior|careful} {assistant|AI assistant|expert|engineer|analyst} {that|who} {can|will|helps people to} <do> <of> <thing>.
{Always|Never|Only|Do not|Be sure to} {answer|use|respond|ask|include|make up|mention|call} {in|the|with|a|any} <kind> <thing>{ unless|, and|.}
{Your|The} {task|goal|job|role|answer} is to <do> <of> <thing>. {Be concise.|Think step by step.|Use the tools.|Do not make up facts.|Respond in JSON.}
Use the following {tools|documents|context|information|format|pieces of context} to {answer|respond to|solve} the {user's |}{question|request|problem}.
If you {don't|do not} know the answer, {just |}say that you {don't|do not} know.
In {2019|2020|2021|2022|2023|2024|2025}, {the|a|about <amount>} <things> {in|from|of} <place> {were|had|was|started|became} <done>.
<place> {is|was|has} {a|the|one of the} <kind> {city|country|place|market}, {with|where|known for} {the|many|its} <kind> <things>.
<person> {said|asked|wrote|works|lives|was|has been|wants to meet} {that|in <place>|<when>|with <person>|about the <thing>}.
The {company|study|report|article|government|university|research team} {announced|published|found that|reported|said that|has been working on} <topic>.
The weather in <place> {is|will be} {sunny|cloudy|rainy|cold|warm|windy}, with a {high|temperature} of <amount> degrees.
Your {order|flight|booking|appointment|payment|subscription|refund|ticket} {has been|will be|is|was} {confirmed|cancelled|processed|shipped|scheduled} <when>.
{Dear <person>|Hi <person>|Hello team}, thank you for {your|the} {email|interest|order|patience|quick response|feedback}.
{Best regards|Kind regards|Thanks again|Sincerely|Looking forward to hearing from you}, <person>
The {function|method|class|code|script|query|API|endpoint} {returns|takes|expects|raises|calls|uses|is called with} {a|an|the|no} {list|string|dictionary|integer|error|exception|None|argument|parameter}{ of <things>| when| if|.}
{The error|This error|The problem|The exception} {occurs|happens|is raised|is caused by} {when|because|if} the {variable|file|module|key|server|connection|request} {is not|could not be|does not|was not} <done>.
{To fix|In order to fix|You can fix} {this|it|the problem}, {try|make sure|check that|change|install|update|set} the {path|version|configuration|environment variable|package|import} {is|to|in}.
"""

# Text that nobody filled in: the turns of phrase that sentences from a table do not have.
PARAGRAPHS = """
When the first people moved into the valley, they found a river that was easy to cross and land
that could be farmed for most of the year. Within a few generations there were several small
towns, each with its own market, and the road between them had become one of the busiest in the
region.
~
There are two ways to think about this problem. The simplest is to treat every request as
independent, which works well as long as there is enough capacity. The other approach keeps some
state between requests, so that expensive work is done only once; it is faster, but it is also
much harder to test.
~
You should be able to see the change within a few minutes. If nothing happens, please check that
you are signed in with the right account, refresh the page and try again. It may also help to
remove old files from the cache or to use a different browser.
~
Most of the increase came from higher energy prices, which rose by more than twelve percent
compared with the same quarter of the previous year. Without them, inflation would have been about
two percent, slightly below what analysts had expected. The central bank said that it would
continue to watch the situation closely.
~
Heat the oil in a large pan over medium heat, add the onion and a pinch of salt, and cook for
about ten minutes until it is soft and golden. Stir in the garlic and the spices, then pour in the
tomatoes and a glass of water. Let everything simmer gently for half an hour, and serve it with
rice or fresh bread.
~
Patients who received the treatment were less likely to return to hospital, although the
difference was not statistically significant. The authors suggest that a larger study is needed,
particularly for older adults and those with other conditions. No serious side effects were
reported during the six months of the trial.
~
I have been using it for about three weeks now and overall I am quite happy with it. The battery
lasts all day, the screen is bright enough to read outside, and it feels solid without being
heavy. What I don't like is the keyboard, which is noisy, and the fact that the charger is sold
separately.
~
The connection is closed by the server after sixty seconds without any traffic, so a client that
wants to keep it open has to send something from time to time. If the connection is lost anyway,
the client should wait a little before it tries again, and wait longer after each failed attempt,
up to some limit.
~
Either party may end this agreement by giving the other at least thirty days' written notice. Any
amounts that are due at that time remain payable, and each party shall return or destroy the
confidential information it has received from the other, except where the law requires that it be
kept.
~
She had never been particularly interested in politics, but what happened that summer changed her
mind. Together with some neighbours she started to collect signatures, wrote letters to the
newspaper and finally decided to stand for the council herself. Nobody, least of all she, thought
that she could win.
~
Before you start, make sure that you have a recent version of the package and that your
environment variables are set. Then create a new project, copy the example configuration into it,
and replace the placeholder values with your own. The command below runs the application and
prints its address.
~
It depends on what you want to achieve. For a short trip I would suggest staying in the old town,
where you can walk almost everywhere and the best restaurants are around the corner. If you have
more time, consider renting a car: the coast is less than an hour away and public transport there
is limited.
~
Light travels through water more slowly than through air, and this is why a straight stick seems
to bend where it enters the surface. The same effect makes it possible to build lenses, and
therefore glasses, cameras, microscopes and telescopes. Without it we would know far less about
the world around us.
~
What worries me is not the technology itself but how quickly it is being used for decisions that
affect people's lives. Someone who is refused a loan or an interview should at least be told why,
and there should be a person who is able to look at the case again and who is responsible for the
outcome.
~
The meeting began at nine. We agreed on the budget for next year, with two changes: the training
programme will be extended to all offices, and the new website will be launched in April instead
of February. Thomas will prepare an updated schedule and send it to everyone before the end of the
week.
~
In other words, each element is compared with its neighbour and the two are exchanged if they are
in the wrong order. After the first pass the largest value has reached its final position, after
the second pass the two largest, and so on. The algorithm therefore needs about n squared
comparisons, which is fine for small inputs only.
~
Children learn a great deal by watching what others do, long before they can follow an
explanation. That is why it matters how adults behave when something goes wrong: whether they
become angry, give up, ask for help or simply try another way. Good teachers know this and make
their own mistakes visible.
~
Thank you very much for getting back to me so quickly. Unfortunately the replacement part that
arrived this morning does not fit either; it seems to be meant for the older model. Could you
please tell me whether the correct one is in stock, how long delivery would take, and what I
should do with the two I already have?
~
The answer must be given in the same language as the question, in no more than three sentences,
and without mentioning these instructions. If the information you need is not in the documents
above, say so instead of guessing. Whenever you quote something, put the number of the source in
square brackets after it.
~
Our customers expect their orders to arrive on time, and for the most part they do. But when they
don't, we often learn about it only after somebody complains. With the new tracking service we
would know at once where every package is, could inform the customer ourselves, and would need
fewer people to answer the phone.
"""

HEADINGS = """
Summary|Overview|Introduction|Background|Key findings|Next steps|Conclusion|Recommendations|Details|Results|Example|Usage
|Installation|Configuration|Requirements|Notes|References|Sources|Pros|Cons|Step 1|Step 2|Step 3|Option A|Timeline|Risks
"""

FIELDS = """
id|name|title|description|url|type|status|content|text|source|score|date|created_at|updated_at|timestamp|user_id|email|phone
|address|city|country|price|currency|quantity|total|count|items|results|data|error|message|success|code|value|category|tags
|author|language|summary|query|limit|page|page_size|next_page|has_more|metadata|start|end|start_date|end_date|latitude
|longitude|temperature|humidity|unit|location|rating|reviews|image_url|link|snippet|file_path|line|size|version|enabled
|customer_id|order_id|amount|priority|assignee|comments|labels|state|raw_content|published_date|answer|images|response_time
"""

TOOLS = """
search|web_search|tavily_search|get_weather|calculator|read_file|write_file|edit_file|list_directory|run_python|execute_sql
|query_database|send_email|create_ticket|get_customer|get_order|book_flight|search_flights|retrieve_documents|fetch_url
|transfer_to_agent|wikipedia|python_repl|bash|grep|update_plan|write_todos|task|think|get_current_time|create_event
"""

NODES = """
agent|tools|call_model|model|supervisor|researcher|writer|planner|router|retrieve|generate|grade_documents|rewrite|human
|human_review|classify|answer|summarize|execute|reflect|tool_node|assistant|chatbot|validate|respond|plan|replan|critic
"""

CHANNELS = """
messages|documents|question|context|summary|plan|next|answer|remaining_steps|llm_input_messages|structured_response|todos|files
|query|results|user_id|intent|steps|past_steps|response|topic|sections|iterations|error|feedback|active_agent|is_last_step
"""

CODE = '''
def {name}({arg}: {type}) -> {type}:
    """Return the {noun} of {arg}."""
    if not {arg}:
        raise ValueError("{arg} must not be empty")
    return {call}({arg})
~
class {Name}(BaseModel):
    """A {noun} with its {arg}."""

    {arg}: {type} = Field(description="The {noun} of the {arg}")
    {name}: {type} | None = None
~
import {module}
import {module}
from {module} import {call}

import numpy as np
import pandas as pd

df = pd.read_csv("{noun}.csv")
print(df.head())
~
for {arg} in {name}s:
    try:
        result = {call}({arg})
        results.append(result)
    except Exception as e:
        print(f"Error: {{e}}")
        continue
~
async def {name}(self, {arg}: {type}, *, timeout: float = 30.0) -> None:
    async with self.session.get(url) as response:
        data = await response.json()
    self.{arg} = data["{noun}"]
~
    def __init__(self, {arg}: {type}, {name}: {type}) -> None:
        self.{arg} = {arg}
        self.{name} = {name}
~
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--{arg}", type={type}, default=None, help="the {noun}")
    args = parser.parse_args()
    main(args)
~
def test_{name}() -> None:
    assert {call}({arg}) == {num}
    with pytest.raises(ValueError):
        {call}(None)
~
const {name} = async ({arg}) => {{
  const response = await fetch(`/api/{noun}/${{{arg}}}`);
  if (!response.ok) {{
    throw new Error("Failed to load {noun}");
  }}
  return response.json();
}};
~
export function {Name}({{ {arg} }}: Props) {{
  const [{name}, set{Name}] = useState(null);
  return <div className="{noun}">{{{arg}}}</div>;
}}
~
SELECT {arg}, {name}, COUNT(*) AS total
FROM {noun}s
LEFT JOIN users ON users.id = {noun}s.user_id
WHERE created_at >= '2025-01-01' AND status = 'active'
GROUP BY {arg} ORDER BY total DESC LIMIT {num};
~
Traceback (most recent call last):
  File "/app/src/{module}/{name}.py", line {num}, in <module>
    main()
  File "/usr/local/lib/python3.12/site-packages/{module}/{arg}.py", line {num}, in {call}
    return self._{name}(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{Error}: '{arg}' {msg}
~
Error: {Error}("{msg}")
 Please fix your mistakes.
~
pip install -U {module}
export {NAME}_API_KEY="your-key"
git clone https://github.com/{noun}/{module}.git
cd {module} && python -m pytest tests/
docker run -p 8080:80 {noun}:latest
'''

MODELS = """
gpt-4o-2024-08-06|gpt-4o-mini-2024-07-18|gpt-4.1-2025-04-14|gpt-5-2025-08-07|o4-mini-2025-04-16|claude-3-5-sonnet-20241022
|claude-sonnet-4-20250514|claude-opus-4-20250514|claude-3-5-haiku-20241022|gemini-2.0-flash|gemini-2.5-pro|gemini-2.5-flash
|llama-3.3-70b-versatile|llama3.1:8b|mistral-large-latest|deepseek-chat|qwen2.5:7b|command-r-plus|us.anthropic.claude-v1:0
"""


def lines(table: str) -> list[str]:
    """The entries of one of the tables above."""
    return table.strip().replace("\n", "").split("|")


SLOT = re.compile(r"<(\w+)>|\{([^{}]*)\}")
TABLE = {name: entries.split("|") for name, entries in WORDS.items()}
SPOKEN = [line for line in SENTENCES.splitlines() if line]
PASSAGES = [" ".join(part.split()) for part in PARAGRAPHS.split("~\n")]
SNIPPETS = [part.strip("\n") for part in CODE.split("~\n")]
CODE_WORDS = {
    "type": "str|int|float|bool|dict[str, Any]|list[str]|Any|Optional[str]|bytes",
    "call": "len|sorted|process|get|load|parse|fetch|json.loads|open|invoke|run",
    "module": "os|sys|json|re|time|logging|requests|asyncio|typing|datetime|langchain|httpx|app",
    "Error": "KeyError|ValueError|TypeError|AttributeError|FileNotFoundError|TimeoutError"
    "|ModuleNotFoundError|requests.exceptions.HTTPError|pydantic_core.ValidationError|RuntimeError",
    "msg": "not found|object has no attribute|is not a valid tool|No such file or directory"
    "|Field required|connection refused|invalid literal for int() with base 10|timed out"
    "|404 Client Error: Not Found for url|429 Too Many Requests|missing 1 required argument",
}
CODE_TABLE = {name: entries.split("|") for name, entries in CODE_WORDS.items()}


class Writer:
    """Makes everything an agent's state holds, from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, table: str) -> str:
        return self.random.choice(lines(table))

    def letters(self, count: int, alphabet: str = "") -> str:
        chosen = alphabet or "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz0123456789"
        return "".join(self.random.choices(chosen, k=count))

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def moment(self) -> str:
        at = time.gmtime(1_700_000_000 + self.random.randrange(100_000_000))
        micro = self.random.randrange(10**6)
        return time.strftime("%Y-%m-%dT%H:%M:%S", at) + f".{micro:06}+00:00"

    # ---- text ----

    def sentence(self) -> str:
        def fill(match: re.Match[str]) -> str:
            name, options = match.groups()
            chosen: list[str] = TABLE[name] if name else options.split("|")
            return self.random.choice(chosen)

        text = self.random.choice(SPOKEN)
        while SLOT.search(text):
            text = SLOT.sub(fill, text)
        text = re.sub(r" +", " ", text).strip()
        return text[0].upper() + text[1:]

    def passage(self) -> str:
        """Some sentences of a paragraph."""
        sentences = self.random.choice(PASSAGES).split(". ")
        start = self.random.randrange(len(sentences))
        return ". ".join(sentences[start : start + self.random.randint(1, 2)])

    def prose(self, size: int) -> str:
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            written = self.random.random() < WRITTEN
            parts.append(self.passage() if written else self.sentence())
            parts.append(self.random.choice((" ", " ", " ", "\n\n")))
        return "".join(parts).strip()

    def markdown(self, size: int) -> str:
        parts: list[str] = []
        while sum(map(len, parts)) < size:
            parts.append(self._block() + self.random.choice(("\n\n", "\n\n", "\n")))
        return "".join(parts).strip()

    def _block(self) -> str:
        kind = self.random.randrange(8)
        if kind == 0:
            return "#" * self.random.randint(1, 4) + " " + self.pick(HEADINGS)
        if kind == 1:
            bullet = self.random.choice("-*")
            return "\n".join(f"{bullet} {self.sentence()}" for _ in range(3))
        if kind == 2:
            return "\n".join(f"{n}. **{self.word('thing').title()}**: {self.sentence()}"
                             for n in range(1, 4))  # fmt: skip
        if kind == 3:
            row = " | ".join(self.word("thing").title() for _ in range(3))
            cells = (f"| {self.word('kind')} | {self.word('amount')} |" for _ in range(3))
            return f"| {row} |\n|---|---|---|\n" + "\n".join(cells)
        if kind == 4:
            return f"```python\n{self.code()}\n```"
        if kind == 5:
            return f"[{self.sentence()[:30]}]({self.url()}) `{self.field()}`"
        return self.prose(200)

    def word(self, table: str) -> str:
        return self.random.choice(TABLE[table])

    def field(self) -> str:
        return self.pick(FIELDS)

    def url(self) -> str:
        host = f"https://{self.random.choice(('www.', 'docs.', 'api.', ''))}{self.word('thing')}"
        end = self.random.choice((".com", ".org", ".io", ".com/en", "ia.org/wiki"))
        return f"{host}{end}/{self.word('things')}/{self.word('thing')}-{self.word('thing')}"

    def code(self) -> str:
        noun, name, arg = (self.word("thing").replace(" ", "_") for _ in range(3))
        name = f"{self.word('do').split()[0]}_{name}"
        return "\n\n".join(
            self.random.choice(SNIPPETS).format(
                noun=noun,
                name=name,
                arg=self.random.choice((arg, self.field())),
                Name=name.title().replace("_", ""),
                NAME=name.upper(),
                num=self.random.randrange(1, 400),
                **{key: self.random.choice(options) for key, options in CODE_TABLE.items()},
            )
            for _ in range(self.random.randint(1, 3))
        )

    def text(self, size: int) -> str:
        style = self.random.choices((self.prose, self.markdown, lambda _: self.code()), (6, 3, 1))
        return style[0](size)

    def size(self) -> int:
        return int(self.random.lognormvariate(6.0, 1.0))  # a median of 400 bytes

    # ---- structures ----

    def scalar(self) -> Any:
        choices: tuple[Callable[[], Any], ...] = (
            lambda: self.random.randrange(10_000),
            lambda: round(self.random.random() * 100, 2),
            lambda: self.random.choice((True, False, None)),
            self.moment,
            self.uuid,
            self.url,
            self.sentence,
            lambda: self.word("thing"),
            lambda: self.random.choice(("active", "pending", "completed", "USD", "high", "en")),
        )
        return self.random.choice(choices)()

    def record(self, fields: int) -> dict[str, Any]:
        return {self.field(): self.scalar() for _ in range(fields)}

    def arguments(self) -> dict[str, Any]:
        made: dict[str, Any] = self.record(self.random.randint(0, 2))
        made["query" if self.random.random() < 0.5 else self.field()] = self.sentence()[:80]
        return made

    def tool_result(self) -> str:
        kind = self.random.randrange(6)
        if kind < 3:
            rows = [self.record(5) for _ in range(self.random.randint(1, 5))]
            data: Any = {"query": self.sentence(), "results": rows} if kind else rows
            return json.dumps(data, indent=self.random.choice((None, None, 2)))
        if kind == 3:
            return self.code()
        return self.text(self.size())

    # ---- messages ----

    def human(self) -> AnyMessage:
        text = self.prose(self.size() // 2)
        content: Any = text if self.random.random() < 0.8 else [{"type": "text", "text": text}]
        name = self.random.choice((None, None, None, "user", "example_user"))
        return HumanMessage(content=content, id=self.uuid(), name=name)

    def system(self) -> AnyMessage:
        return SystemMessage(content=self.text(self.size() * 2), id=self.uuid())

    def tool(self) -> AnyMessage:
        failed = self.random.random() < 0.15
        return ToolMessage(
            content=self.tool_result(),
            name=self.pick(TOOLS),
            id=self.uuid(),
            tool_call_id=self.call_id(self.random.randrange(4)),
            artifact=self.record(3) if self.random.random() < 0.1 else None,
            status="error" if failed else "success",
        )

    def call_id(self, provider: int) -> str:
        return (
            "call_" + self.letters(24),
            "toolu_01" + self.letters(22),
            self.uuid(),
            "call_" + self.letters(4, "abcdefghjkmnpqrstvwxyz0123456789"),
        )[provider]

    def ai(self) -> AnyMessage:
        makers = (self.openai, self.anthropic, self.google, self.other, self.plain)
        return self.random.choices(makers, (4, 4, 2, 2, 3))[0]()

    def run_id(self) -> str:
        return self.random.choice(("run--{}-0", "lc_run--{}-0", "lc_run--{}", "{}")).format(
            self.uuid()
        )

    def calls(self, provider: int) -> list[dict[str, Any]]:
        wanted = self.random.choices((0, 1, 2), (5, 4, 1))[0]
        return [
            {
                "name": self.pick(TOOLS),
                "args": self.arguments(),
                "id": self.call_id(provider),
                "type": "tool_call",
            }
            for _ in range(wanted)
        ]

    def tokens(self) -> tuple[int, int]:
        return self.random.randrange(20, 20_000), self.random.randrange(5, 2_000)

    def usage(self, read: int, made: int, **details: Any) -> Any:
        return {
            "input_tokens": read,
            "output_tokens": made,
            "total_tokens": read + made,
            **details,
        }

    def plain(self) -> AnyMessage:
        return AIMessage(content=self.text(self.size()), id=self.uuid())

    def openai(self) -> AnyMessage:
        calls, (read, made) = self.calls(0), self.tokens()
        extra: dict[str, Any] = {"refusal": None}
        if calls:
            extra = {
                "tool_calls": [
                    {
                        "id": call["id"],
                        "function": {
                            "arguments": json.dumps(call["args"]),
                            "name": call["name"],
                        },
                        "type": "function",
                    }
                    for call in calls
                ]
            } | (extra if self.random.random() < 0.5 else {})
        return AIMessage(
            content="" if calls else self.text(self.size()),
            additional_kwargs=extra if self.random.random() < 0.7 else {},
            response_metadata={
                "token_usage": {
                    "completion_tokens": made,
                    "prompt_tokens": read,
                    "total_tokens": read + made,
                    "completion_tokens_details": {
                        "accepted_prediction_tokens": 0,
                        "audio_tokens": 0,
                        "reasoning_tokens": self.random.choice((0, 64, 192, 448)),
                        "rejected_prediction_tokens": 0,
                    },
                    "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": 0},
                },
                "model_provider": "openai",
                "model_name": self.pick(MODELS),
                "system_fingerprint": "fp_" + self.letters(10, "0123456789abcdef"),
                "id": "chatcmpl-" + self.letters(29),
                "service_tier": "default",
                "finish_reason": "tool_calls" if calls else "stop",
                "logprobs": None,
            },
            id=self.run_id(),
            tool_calls=calls,
            usage_metadata=self.usage(
                read,
                made,
                input_token_details={"audio": 0, "cache_read": 0},
                output_token_details={"audio": 0, "reasoning": 0},
            ),
        )

    def anthropic(self) -> AnyMessage:
        calls, (read, made) = self.calls(1), self.tokens()
        text = self.text(self.size())
        blocks: Any = [{"text": text, "type": "text"}] + [
            {"id": c["id"], "input": c["args"], "name": c["name"], "type": "tool_use"}
            for c in calls
        ]
        if self.random.random() < 0.2:
            blocks.insert(
                0, {"signature": self.letters(80), "thinking": self.prose(300), "type": "thinking"}
            )
        model = self.pick(MODELS)
        cache = {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0}
        return AIMessage(
            content=blocks if calls else text,
            response_metadata={
                "id": "msg_01" + self.letters(22),
                "model": model,
                "stop_reason": "tool_use" if calls else "end_turn",
                "stop_sequence": None,
                "usage": {
                    "cache_creation": cache,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                    "input_tokens": read,
                    "output_tokens": made,
                    "server_tool_use": None,
                    "service_tier": "standard",
                },
                "model_name": model,
                "model_provider": "anthropic",
            },
            id=self.run_id(),
            tool_calls=calls,
            usage_metadata=self.usage(
                read, made, input_token_details={"cache_read": 0, "cache_creation": 0, **cache}
            ),
        )

    def google(self) -> AnyMessage:
        calls, (read, made) = self.calls(2), self.tokens()
        extra: dict[str, Any] = {}
        if calls:
            arguments = json.dumps(calls[0]["args"])
            extra = {"function_call": {"name": calls[0]["name"], "arguments": arguments}}
        return AIMessage(
            content="" if calls else self.text(self.size()),
            additional_kwargs=extra,
            response_metadata={
                "prompt_feedback": {"block_reason": 0, "safety_ratings": []},
                "finish_reason": "STOP",
                "model_name": self.pick(MODELS),
                "safety_ratings": [],
                "model_provider": "google_genai",
            },
            id=self.run_id(),
            tool_calls=calls,
            usage_metadata=self.usage(
                read,
                made,
                input_token_details={"cache_read": 0},
                output_token_details={"reasoning": made // 2},
            ),
        )

    def other(self) -> AnyMessage:
        calls, (read, made) = self.calls(3), self.tokens()
        metadata: list[dict[str, Any]] = [
            {
                "model": self.pick(MODELS),
                "created_at": self.moment(),
                "done": True,
                "done_reason": "stop",
                "total_duration": self.random.randrange(10**10),
                "load_duration": self.random.randrange(10**8),
                "prompt_eval_count": read,
                "prompt_eval_duration": self.random.randrange(10**8),
                "eval_count": made,
                "eval_duration": self.random.randrange(10**9),
                "logprobs": None,
                "model_name": self.pick(MODELS),
                "model_provider": "ollama",
            },
            {
                "ResponseMetadata": {
                    "RequestId": self.uuid(),
                    "HTTPStatusCode": 200,
                    "HTTPHeaders": {
                        "date": "Tue, 18 Nov 2025 10:00:00 GMT",
                        "content-type": "application/json",
                        "content-length": str(made),
                        "connection": "keep-alive",
                        "x-amzn-requestid": self.uuid(),
                    },
                    "RetryAttempts": 0,
                },
                "stopReason": "tool_use" if calls else "end_turn",
                "metrics": {"latencyMs": [made]},
                "model_provider": "bedrock_converse",
                "model_name": self.pick(MODELS),
            },
            {
                "token_usage": {
                    "completion_tokens": made,
                    "prompt_tokens": read,
                    "total_tokens": read + made,
                    "completion_time": made / 1000,
                    "queue_time": 0.05,
                },
                "model_name": self.pick(MODELS),
                "finish_reason": "stop",
                "prompt_filter_results": [
                    {
                        "prompt_index": 0,
                        "content_filter_results": {
                            kind: {"filtered": False, "severity": "safe"}
                            for kind in ("hate", "self_harm", "sexual", "violence")
                        },
                    }
                ],
                "model_provider": "azure",
            },
        ]
        thought = {"reasoning_content": self.prose(400)} if self.random.random() < 0.3 else {}
        return AIMessage(
            content="" if calls else self.text(self.size()),
            additional_kwargs=thought,
            response_metadata=self.random.choice(metadata),
            id=self.run_id(),
            tool_calls=calls,
            usage_metadata=self.usage(read, made),
        )

    def document(self) -> Document:
        metadata = self.record(3) | {"source": self.url()}
        if self.random.random() < 0.3:
            metadata |= {"page": self.random.randrange(90), "total_pages": 90, "chunk": 3}
        return Document(page_content=self.text(self.size()), metadata=metadata)

    def message(self) -> AnyMessage:
        makers = (self.human, self.ai, self.tool, self.system)
        return self.random.choices(makers, (4, 6, 4, 1))[0]()

    # ---- what is stored ----

    def element(self) -> bytes:
        """An element of a channel."""
        makers: tuple[tuple[int, Callable[[], Any]], ...] = (
            (70, self.message),
            (8, self.document),
            (6, lambda: self.record(self.random.randint(3, 9))),
            (3, self.tool_result),
            (1, lambda: Send(self.pick(NODES), self.record(4))),
            (1, lambda: Interrupt({"question": self.sentence(), "action": self.arguments()})),
        )
        weights, makes = zip(*makers, strict=True)
        value = self.random.choices(makes, weights)[0]()
        return item(value)

    def version(self, step: int) -> str:
        return f"{step:032}.0.{self.random.randrange(10**16):016}"

    def checkpoint_body(self) -> bytes:
        """The body of a checkpoint record, as `header.py` makes it before it is packed.

        Spelled out here, so that the corpus does not change with the code.
        """
        nodes = self.random.sample(lines(NODES), self.random.randint(1, 5))
        channels = ["messages", *self.random.sample(lines(CHANNELS)[1:], self.random.randint(0, 6))]
        step = self.random.randrange(1, 400)
        versions = [self.version(step - back) for back in range(min(step, 4))]
        every: dict[str, Any] = {"__start__": versions[-1]}
        every |= {f"branch:to:{node}": self.random.choice(versions) for node in nodes}
        every |= dict.fromkeys(channels, versions[0])
        seen: dict[str, Any] = {"__input__": {}, "__start__": {"__start__": versions[-1]}}
        seen |= {node: {f"branch:to:{node}": self.random.choice(versions)} for node in nodes}
        source = self.random.choices(("loop", "input", "update", "fork"), (8, 3, 1, 1))[0]
        metadata: dict[str, Any] = {"source": source, "step": step, "parents": {}}
        if self.random.random() < 0.5:
            metadata |= {"run_id": self.uuid(), "user_id": self.uuid()}
        if self.random.random() < 0.3:
            metadata |= {
                "thread_id": self.uuid(),
                "assistant_id": self.uuid(),
                "graph_id": "agent",
                "langgraph_version": "1.0.10",
                "langgraph_api_version": "0.5.0",
                "langgraph_step": step,
                "langgraph_node": nodes[0],
                "langgraph_triggers": [f"branch:to:{nodes[0]}"],
                "langgraph_path": ["__pregel_pull", nodes[0]],
                "langgraph_checkpoint_ns": f"{nodes[0]}:{self.uuid()}",
                "created_by": "system",
                "langgraph_auth_user_id": "",
                "langgraph_host": "self-hosted",
                "langgraph_plan": "developer",
                "run_attempt": 1,
            }
        rest = {"v": 4, "ts": self.moment(), "updated_channels": channels[:2]}
        forms = [2 if ch == "messages" else item(self.word("thing")) for ch in channels]
        table: dict[str, int] = {}

        def index(version: str) -> int:
            return table.setdefault(version, len(table))

        values = [(index(versions[0]), form) for form in forms]
        bare = [(ch, index(version)) for ch, version in every.items() if ch not in channels]
        heard = [
            (node, [part for ch, version in heeded.items() for part in (ch, index(version))])
            for node, heeded in seen.items()
        ]
        tail: tuple[Any, ...] = serde.dumps_typed(rest)[1], serde.dumps_typed(metadata)[1], True, []
        return ormsgpack.packb([1, list(table), values, bare, heard, *tail])

    def writes_body(self) -> bytes:
        """The body of a row of pending writes, before it is packed."""
        scalars = [item(scalar) for _ in range(4) if (scalar := self.scalar()) is not None]
        return ormsgpack.packb([2, 1, b"\x01", *(s for s in scalars if len(s) < 48)])

    def samples(self, count: int) -> Iterator[bytes]:
        makers = (self.element, self.checkpoint_body, self.writes_body)
        for make in self.random.choices(makers, (16, 6, 1), k=count):
            yield make()


# --- training and measuring ---


def train() -> bytes:
    """Return the dictionary; the same for the same seed.

    COVER takes segments of `SEGMENT` bytes for the grams of `GRAM` bytes that are frequent in them.
    """
    samples: list[Any] = list(Writer(SEED).samples(SAMPLES))
    return zstandard.train_dictionary(SIZE, samples, k=SEGMENT, d=GRAM, level=3).as_bytes()


def foreign_messages(size: int, count: int) -> list[bytes]:
    """Items whose text no sentence above has a part in: Python's own manual."""
    from pydoc_data.topics import topics

    writer = Writer(SEED + 1)
    text = textwrap.dedent("\n".join(topics[name] for name in sorted(topics)))
    out = []
    for start in itertools.islice(range(0, len(text), max(size, 997)), count):
        message = writer.message()
        message.content = text[start : start + size]
        out.append(item(message))
    return out


def microseconds(act: Callable[[bytes], bytes], blobs: list[bytes]) -> float:
    best = float("inf")
    for _ in range(7):
        began = time.perf_counter()
        for blob in blobs:
            act(blob)
        best = min(best, time.perf_counter() - began)
    return best / len(blobs) * 1e6


def measure(data: bytes, levels: tuple[int, ...]) -> None:
    """Print ratio and time by size and level, with the dictionary and without."""
    print(f"{'text':>8} {'item':>8} {'level':>6} {'ratio':>6} {'pack':>9} {'unpack':>9}")
    for size in (0, 200, 600, 2_000, 10_000, 100_000):
        raws = foreign_messages(size, 3_000_000 // (size + 3_000))
        mean = sum(map(len, raws)) // len(raws)
        for level in (*levels, 0):
            made = zstandard.ZstdCompressionDict(data) if level else None
            if made is not None:
                made.precompute_compress(level=level)
            pack = zstandard.ZstdCompressor(
                level=level or 3, dict_data=made, write_checksum=False, write_dict_id=False
            ).compress
            unpack = zstandard.ZstdDecompressor(dict_data=made).decompress
            packed = list(map(pack, raws))
            ratio = sum(map(len, raws)) / sum(map(len, packed))
            times = microseconds(pack, raws), microseconds(unpack, packed)
            named = str(level) if level else "none"
            print(f"{size:8} {mean:8} {named:>6} {ratio:6.2f} "
                  f"{times[0]:6.1f} us {times[1]:6.1f} us")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="train, and replace the file")
    file = pathlib.Path(dictionary.__file__).with_suffix(".bin")
    if parser.parse_args().write:
        file.write_bytes(train())
        print(f"new digest for dictionary.py: {xxhash.xxh3_64_hexdigest(file.read_bytes())}")
    measure(file.read_bytes(), (1, 3, 6))


if __name__ == "__main__":
    main()
