//! Native formats against the models' own templates, and the laws of ids and masks, over generated
//! conversations. Longer runs of the same: `tests/fuzz/differential.rs`.

use std::path::{Path, PathBuf};

use potable::decontaminate::Decontaminator;
use potable::normalise::native::{Ending, render};
use potable::normalise::{
    Acted, ChatTemplate, ControlFinder, ControlText, Controls, EmptyThink, History, LeadingNewlines,
    Normaliser, OnLossy, Policy, RenderedSample, TextFormat, Train,
};
use potable::source::adapt::{Adapted, Conversation, Message, Outcome, Role};
use potable::tokenise::{Tokeniser, TokeniserChoice};
use proptest::prelude::*;

use super::conversations::{Numbers, conversation, string};
use super::harness::skipped;
use super::templates::{FORMATS, models};

/// A ChatML template of our own, in which a turn is what follows its prompt.
const CHATML: &str = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

fn shared(path: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared").join(path);
    if path.exists() {
        return Some(path);
    }
    skipped(&format!("{} is not there", path.display()));
    None
}

fn controls(tokeniser: &Tokeniser) -> Controls {
    Controls {
        finder: ControlFinder::new(&tokeniser.control_strings()),
        end_of_text: tokeniser.end_of_text().to_owned(),
    }
}

/// The tokenizer with one token a byte.
fn bytes() -> Tokeniser {
    Tokeniser::load(TokeniserChoice {
        tokenizer: "tests/fixtures/bytes.tokenizer.json",
        base: Path::new(env!("CARGO_MANIFEST_DIR")),
        format: TextFormat::Qwen3,
        end_of_text: None,
    })
    .unwrap()
}

fn samples(
    normaliser: &Normaliser,
    conversation: Conversation,
    acted: &mut Acted,
) -> Option<Vec<RenderedSample>> {
    let row = Decontaminator::new(None, false).apply(Adapted::Chat(conversation)).row.unwrap();
    match normaliser.apply(&row, acted) {
        Outcome::Keep(samples) => Some(samples),
        Outcome::Drop(_) => None,
    }
}

fn chat(pairs: &[(Role, &str)]) -> Conversation {
    let messages = pairs.iter().map(|(role, text)| Message::new(role.clone(), *text)).collect();
    Conversation { messages, tools: Vec::new() }
}

#[test]
fn every_native_format_renders_as_the_model_s_own_template() {
    let Some(folder) = shared("data/templates") else { return };
    for model in models(&folder) {
        let (mut texts, mut refused) = (0, 0);
        for number in 0..3000 {
            let counts = model.compare(&conversation(&mut Numbers::of(11, number))).unwrap();
            texts += counts.0;
            refused += counts.1;
        }
        assert!(refused > 0 && refused * 2 < texts, "{}: {refused} of {texts} refused", model.name);
    }
}

#[test]
fn generated_strings_have_the_ids_of_the_reference() {
    let Some(path) = shared("data/tokenizers/qwen3.tokenizer.json") else { return };
    let reference = tokenizers::Tokenizer::from_file(path).unwrap();
    let tokeniser = Tokeniser::built_in().unwrap();
    for number in 0..3000 {
        let text = string(&mut Numbers::of(12, number));
        let theirs = reference.encode(text.as_str(), false).unwrap();
        let sample = RenderedSample { text, ..RenderedSample::default() };
        let ours = tokeniser.encode(&sample, ControlText::Keep).unwrap();
        assert_eq!(ours.ids, theirs.get_ids(), "string {number}: {:?}", sample.text);
    }
}

/// Trained tokens are those whose characters, by the reference's own offsets, overlap a span.
#[test]
fn tokens_trained_on_are_exactly_those_that_overlap_a_span() {
    let Some(path) = shared("data/tokenizers/qwen3.tokenizer.json") else { return };
    let reference = tokenizers::Tokenizer::from_file(path).unwrap();
    let tokeniser = Tokeniser::built_in().unwrap();
    let mut trained = 0;
    for number in 0..1500 {
        let mut numbers = Numbers::of(13, number);
        let made = conversation(&mut numbers);
        let policy = any_policy(&mut numbers);
        let Ok(sample) = render(&made, &policy, Ending::Closed) else { continue };
        let theirs = reference.encode(sample.text.as_str(), false).unwrap();
        let overlaps = |&(start, end): &(usize, usize)| {
            sample.trained.iter().any(|span| span.start < end && start < span.end)
        };
        let expected: Vec<bool> = theirs.get_offsets().iter().map(overlaps).collect();
        let ours = tokeniser.encode(&sample, ControlText::Keep).unwrap();
        let mut found = vec![false; ours.ids.len()];
        for &(start, len) in &ours.trained {
            found[start as usize..(start + len) as usize].fill(true);
        }
        assert_eq!(found, expected, "conversation {number}, {policy:?}: {:?}", sample.text);
        trained += expected.iter().filter(|trained| **trained).count();
    }
    assert!(trained > 10_000, "{trained}");
}

fn any_policy(numbers: &mut Numbers) -> Policy {
    let formats = [TextFormat::Qwen3, TextFormat::Qwen3Instruct2507, TextFormat::Qwen35, TextFormat::Qwen36];
    Policy {
        format: formats[numbers.below(4) as usize],
        history: if numbers.is(30) { History::Keep } else { History::Template },
        train: if numbers.is(50) { Train::AllTurns } else { Train::LastTurns },
        empty_think: if numbers.is(50) { EmptyThink::Mask } else { EmptyThink::Train },
        leading_newlines: if numbers.is(50) { LeadingNewlines::Strip } else { LeadingNewlines::Keep },
        train_newline: numbers.is(20),
        mask_reasoning: numbers.is(30),
        ..Policy::FAITHFUL
    }
}

/// With one token a byte the trained tokens spell the spans: not one more, not one less.
#[test]
fn with_one_token_a_byte_the_trained_tokens_spell_the_spans() {
    let tokeniser = bytes();
    for number in 0..1500 {
        let mut numbers = Numbers::of(14, number);
        let made = conversation(&mut numbers);
        let Ok(sample) = render(&made, &any_policy(&mut numbers), Ending::Closed) else { continue };
        let ours = tokeniser.encode(&sample, ControlText::Keep).unwrap();
        let spans: String =
            sample.trained.iter().map(|span| sample.text.get(span.clone()).unwrap()).collect();
        let ids =
            ours.trained.iter().flat_map(|&(start, len)| &ours.ids[start as usize..(start + len) as usize]);
        let ids: Vec<u32> = ids.copied().collect();
        assert_eq!(tokeniser.decode(&ids).unwrap(), spans, "conversation {number}");
    }
}

/// What stands before a trained span and the span have the ids of the whole text: no token belongs to
/// both. So it is by default; with `leading_newlines = "keep"` the header's newline can be trained on.
#[test]
fn by_default_no_token_straddles_the_start_of_a_trained_span() {
    let tokeniser = Tokeniser::built_in().unwrap();
    let ids = |text: &str| {
        let sample = RenderedSample { text: text.to_owned(), ..RenderedSample::default() };
        tokeniser.encode(&sample, ControlText::Keep).unwrap().ids
    };
    let chatml = ChatTemplate::new(CHATML, Vec::new()).unwrap();
    let policy = Policy { format: TextFormat::Template, on_lossy: OnLossy::Keep, ..Policy::DEFAULT };
    let by_template = Normaliser::new(policy, controls(&tokeniser), Some(chatml));
    let (mut spans, mut stripped) = (0, 0);
    for number in 0..1500 {
        let mut numbers = Numbers::of(19, number);
        let mut made = conversation(&mut numbers);
        let answer = made.messages.iter_mut().rev().find(|m| m.role == Role::Assistant);
        if let Some(answer) = answer.filter(|_| numbers.is(50)) {
            let lead = numbers.pick(&[" \n", "\r\n", "\u{3000}\n ", "\t\n\n", "\r", " \u{85}", "\u{1f}\n"]);
            answer.content = Some(format!("{lead}{}", answer.text()));
        }
        let policy = Policy {
            format: FORMATS[numbers.below(5) as usize],
            mask_reasoning: numbers.is(30),
            train: if numbers.is(50) { Train::AllTurns } else { Train::LastTurns },
            ..Policy::DEFAULT
        };
        let mut found: Vec<RenderedSample> = render(&made, &policy, Ending::Closed).into_iter().collect();
        let mut acted = Acted::new();
        found.extend(samples(&by_template, made, &mut acted).into_iter().flatten());
        stripped += acted.get("leading-newlines-stripped").copied().unwrap_or_default();
        for sample in found {
            let whole = ids(&sample.text);
            for span in &sample.trained {
                let (before, after) = sample.text.split_at(span.start);
                let mut parts = ids(before);
                parts.extend(ids(after));
                assert_eq!(parts, whole, "conversation {number}, {policy:?}: {before:?} and {after:?}");
                spans += 1;
            }
        }
    }
    assert!(spans > 2000 && stripped > 200, "{spans} spans, {stripped} answers stripped");
}

/// Under `control_text = "text"` the control tokens of a sample are those that the renderer wrote, and
/// the ids still spell the text.
fn has_no_control_token_of_a_row(tokeniser: &Tokeniser, normaliser: &Normaliser, seed: u64, count: u64) {
    let finder = ControlFinder::new(&tokeniser.control_strings());
    let is_control: Vec<u32> = tokeniser
        .control_strings()
        .iter()
        .map(|string| {
            let sample = RenderedSample { text: string.clone(), ..RenderedSample::default() };
            tokeniser.encode(&sample, ControlText::Keep).unwrap().ids[0]
        })
        .collect();
    let mut with = 0;
    for number in 0..count {
        let made = conversation(&mut Numbers::of(seed, number));
        for sample in samples(normaliser, made, &mut Acted::new()).into_iter().flatten() {
            let encoded = tokeniser.encode(&sample, ControlText::Text).unwrap();
            let tokens = encoded.ids.iter().filter(|id| is_control.contains(id)).count();
            assert_eq!(tokens, sample.controls.len(), "conversation {number}: {:?}", sample.text);
            let foreign = finder.ranges(&sample.text).len() - sample.controls.len();
            assert_eq!(encoded.foreign, foreign as u64);
            with += u64::from(foreign > 0);
            let spelt = tokeniser.decode(&encoded.ids).unwrap();
            assert!(spelt.chars().eq(unicode_normalised(tokeniser, &sample.text)), "{:?}", sample.text);
        }
    }
    assert!(with > count / 50, "{with} of {count} had a control string");
}

/// The text as the tokenizer takes it: in normal form C with the built-in one.
fn unicode_normalised(tokeniser: &Tokeniser, text: &str) -> Vec<char> {
    use unicode_normalization_alignments::UnicodeNormalization as _;
    match tokeniser.engine().starts_with("fastokens") {
        true => text.nfc().map(|(c, _)| c).collect(),
        false => text.chars().collect(),
    }
}

fn text_policy(format: TextFormat) -> Policy {
    Policy { format, control_text: ControlText::Text, ..Policy::FAITHFUL }
}

#[test]
fn with_control_text_as_text_no_row_makes_a_control_token() {
    let tokeniser = Tokeniser::built_in().unwrap();
    for format in [TextFormat::Qwen3, TextFormat::Qwen35] {
        let normaliser = Normaliser::new(text_policy(format), controls(&tokeniser), None);
        has_no_control_token_of_a_row(&tokeniser, &normaliser, 15, 1500);
    }
}

#[test]
fn with_control_text_as_text_no_row_makes_a_control_token_of_any_other_tokenizer() {
    let tokeniser = bytes();
    let normaliser = Normaliser::new(text_policy(TextFormat::Qwen3), controls(&tokeniser), None);
    has_no_control_token_of_a_row(&tokeniser, &normaliser, 16, 1500);
}

#[test]
fn with_control_text_as_text_no_row_makes_a_control_token_by_a_chat_template() {
    let tokeniser = Tokeniser::built_in().unwrap();
    let named = "{%- for call in m.tool_calls or [] %}{{- call.id or '' }}{%- endfor %}";
    let named = CHATML
        .replace("m.role +", "m.role + (m.name or '') + (m.tool_call_id or '') +")
        .replace("{%- endfor", &format!("{named}{{%- endfor"));
    let template = ChatTemplate::new(&named, Vec::new()).unwrap();
    let normaliser = Normaliser::new(text_policy(TextFormat::Template), controls(&tokeniser), Some(template));
    has_no_control_token_of_a_row(&tokeniser, &normaliser, 17, 1500);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The template engine and the native renderer find the same spans where both can tell.
    #[test]
    fn a_chat_template_is_trained_on_where_the_native_format_is(seed in any::<u64>(), number in any::<u64>()) {
        let Some(path) = shared("data/templates/qwen3_instruct_2507.jinja") else { return Ok(()) };
        let template = ChatTemplate::load(&path).unwrap();
        let tokeniser = bytes();
        for train in [Train::LastTurns, Train::AllTurns] {
            let policy = Policy { format: TextFormat::Template, train, ..Policy::FAITHFUL };
            let by_template = Normaliser::new(policy, controls(&tokeniser), Some(template.clone()));
            let policy = Policy { format: TextFormat::Qwen3Instruct2507, ..policy };
            let native = Normaliser::new(policy, controls(&tokeniser), None);
            let made = conversation(&mut Numbers::of(seed, number));
            // What ends a span is a control string, of the row's text as well.
            prop_assume!(!made.strings().iter().any(|(_, text, _)| text.contains("<|") || text.contains("|>")));
            // A wrapped tool result is no query for Qwen3, nor is null.
            let odd = |m: &Message| m.content.is_none() || m.text().starts_with("<tool_response>");
            prop_assume!(!made.messages.iter().any(odd));
            let (mut ours, mut theirs) = (Acted::new(), Acted::new());
            let native = samples(&native, made.clone(), &mut ours);
            let by_template = samples(&by_template, made.clone(), &mut theirs);
            if let (Some(native), Some(by_template)) = (&native, &by_template)
                && made.has_user()
            {
                prop_assert_eq!(&native[0].text, &by_template[0].text);
                prop_assert_eq!(&native[0].trained, &by_template[0].trained);
            }
        }
    }
}

#[test]
fn a_template_that_marks_generation_is_trained_on_at_its_marks() {
    let Some(path) = shared("data/templates/qwen3_official_with_markers.jinja") else { return };
    let template = ChatTemplate::load(&path).unwrap();
    let tokeniser = bytes();
    let policy = Policy { format: TextFormat::Template, ..Policy::FAITHFUL };
    let marked = Normaliser::new(policy, controls(&tokeniser), Some(template));
    let mut compared = 0;
    for number in 0..1000 {
        let made = conversation(&mut Numbers::of(18, number));
        if made.strings().iter().any(|(_, text, _)| text.contains("<|")) {
            continue;
        }
        let Ok(native) = render(&made, &Policy::FAITHFUL, Ending::Closed) else { continue };
        let Some(by_template) = samples(&marked, made, &mut Acted::new()) else { continue };
        assert_eq!(native.text, by_template[0].text);
        assert_eq!(native.trained, by_template[0].trained, "conversation {number}: {:?}", native.text);
        compared += 1;
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn a_row_whose_answer_cannot_be_told_from_its_prompt_is_dropped_and_not_guessed() {
    let tokeniser = bytes();
    let policy = Policy { format: TextFormat::Template, ..Policy::DEFAULT };
    let spans = |source: &str, made: Conversation| {
        let template = ChatTemplate::new(source, Vec::new()).unwrap();
        let normaliser = Normaliser::new(policy, controls(&tokeniser), Some(template));
        let row = Decontaminator::new(None, false).apply(Adapted::Chat(made)).row.unwrap();
        match normaliser.apply(&row, &mut Acted::new()) {
            Outcome::Keep(mut samples) => {
                let sample = samples.remove(0);
                Ok(sample
                    .trained
                    .iter()
                    .map(|span| sample.text.get(span.clone()).unwrap().to_owned())
                    .collect::<Vec<_>>())
            }
            Outcome::Drop(reason) => Err(reason.name()),
        }
    };
    let one = || chat(&[(Role::User, "q"), (Role::Assistant, "a")]);
    assert_eq!(spans(CHATML, one()), Ok(vec!["a<|im_end|>".to_owned()]));
    // The prompt promises a think block that the answer does not have.
    let other = CHATML.replace("assistant\\n' }}{%- endif", "assistant\\n<think>\\n' }}{%- endif");
    assert_eq!(spans(&other, one()), Err("normalise.span"));
    // What was said before the last turn reads differently once there is one.
    let counting = format!("{{{{- messages | length }}}}{CHATML}");
    let tools = [(Role::User, "q"), (Role::Assistant, "a"), (Role::Tool, "r"), (Role::Assistant, "b")];
    assert_eq!(spans(&counting, one()), Err("normalise.span"));
    assert_eq!(spans(CHATML, chat(&tools)), Ok(vec!["a<|im_end|>".to_owned(), "b<|im_end|>".to_owned()]));
    // The template's own refusal.
    let strict = format!(
        "{{% if messages[0].content == 'bad' %}}{{{{ raise_exception('no') }}}}{{% endif %}}{CHATML}"
    );
    assert_eq!(
        spans(&strict, chat(&[(Role::User, "bad"), (Role::Assistant, "a")])),
        Err("normalise.refused")
    );
}

#[test]
fn masked_reasoning_is_there_and_not_trained_on() {
    let made = chat(&[(Role::User, "q"), (Role::Assistant, "<think>\nwhy\n</think>\n\nbecause")]);
    let policy = Policy { mask_reasoning: true, ..Policy::DEFAULT };
    for format in [TextFormat::Qwen3, TextFormat::Qwen3Thinking2507, TextFormat::Qwen35, TextFormat::Qwen36] {
        let sample = render(&made, &Policy { format, ..policy }, Ending::Closed).unwrap();
        assert!(sample.text.contains("<think>\nwhy\n</think>\n\nbecause"), "{}", sample.text);
        let spans: Vec<&str> =
            sample.trained.iter().map(|span| sample.text.get(span.clone()).unwrap()).collect();
        assert_eq!(spans, ["because<|im_end|>"]);
    }
}
