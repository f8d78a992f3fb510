//! Escapes and character classes of regular expressions.

use std::fmt::Write as _;

use super::{Translator, error};

/// Names in `[[:name:]]`.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

const INVALID_CLASS: &str = "invalid character class range";

impl<'a> Translator<'a> {
    pub(super) fn backslash(&mut self) -> Result<(), String> {
        let start = self.position;
        let known = match self.rest().as_bytes().get(1) {
            Some(b'A') => r"\A",
            Some(b'z') => r"\z",
            Some(b'b') => r"(?-u:\b)",
            Some(b'B') => r"(?-u:\B)",
            Some(b'C') => {
                self.position += 2;
                return Err(self.error_from("invalid escape sequence", start));
            }
            Some(b'Q') => {
                self.position += 2;
                return self.quoted();
            }
            Some(b'p' | b'P') => {
                let class = self.unicode_class()?;
                self.out.push_str(&class);
                self.item(0);
                return Ok(());
            }
            _ => "",
        };
        if !known.is_empty() {
            self.position += 2;
            self.out.push_str(known);
            self.item(0);
        } else if let Some(class) = self.perl_class() {
            self.out.push_str(class);
            self.item(0);
        } else {
            let code = self.escape()?;
            self.literal(code);
        }
        Ok(())
    }

    /// Reads the text between `\Q` and `\E`, or the end.
    fn quoted(&mut self) -> Result<(), String> {
        while !self.accept(r"\E") {
            let Some(c) = self.peek() else { break };
            let code = self.text_char(c)?;
            self.literal(code);
        }
        Ok(())
    }

    /// Reads `\d`, `\s` or `\w`, which are ASCII only.
    fn perl_class(&mut self) -> Option<&'static str> {
        let class = match self.rest().as_bytes() {
            [b'\\', b'd', ..] => "[0-9]",
            [b'\\', b'D', ..] => "[^0-9]",
            [b'\\', b's', ..] => r"[\t\n\x0C\r ]",
            [b'\\', b'S', ..] => r"[^\t\n\x0C\r ]",
            [b'\\', b'w', ..] => "[0-9A-Za-z_]",
            [b'\\', b'W', ..] => "[^0-9A-Za-z_]",
            _ => return None,
        };
        self.position += 2;
        Some(class)
    }

    /// Reads `\pL`, `\p{Greek}` or `\P{^Greek}`.
    fn unicode_class(&mut self) -> Result<String, String> {
        let start = self.position;
        let mut is_negated = self.rest().starts_with(r"\P");
        self.position += 2;
        let name = match self.peek() {
            None => return Err(self.error_from(INVALID_CLASS, start)),
            Some('{') => {
                let Some(length) = self.rest().find('}') else {
                    return Err(error(INVALID_CLASS, &self.source[start..]));
                };
                let name = &self.rest()[1..length];
                self.position += length + 1;
                name
            }
            Some(c) => {
                self.text_char(c)?;
                &self.source[start + 2..self.position]
            }
        };
        let bare = name.strip_prefix('^').unwrap_or(name);
        is_negated ^= bare.len() < name.len();
        let class = format!("\\{}{{{bare}}}", if is_negated { 'P' } else { 'p' });
        // The crate also accepts other spellings of the same name.
        let is_word = bare.starts_with(|c: char| c.is_ascii_uppercase())
            && bare.chars().all(|c| c == '_' || c.is_ascii_alphabetic());
        if !is_word || regex_syntax::Parser::new().parse(&class).is_err() {
            return Err(self.error_from(INVALID_CLASS, start));
        }
        Ok(class)
    }

    /// Reads an escape and returns its code point.
    fn escape(&mut self) -> Result<u32, String> {
        let start = self.position;
        self.take();
        let Some(c) = self.peek() else {
            return Err(error("trailing backslash at end of expression", ""));
        };
        self.text_char(c)?;
        let is_octal = |c: Option<char>| c.is_some_and(|c| c.is_digit(8));
        match c {
            '1'..='7' if !is_octal(self.peek()) => {}
            '0'..='7' => {
                let mut code = c as u32 - '0' as u32;
                for _ in 0..2 {
                    let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    self.take();
                }
                return Ok(code);
            }
            'x' => {
                if let Some(code) = self.hexadecimal() {
                    return Ok(code);
                }
            }
            'a' => return Ok(0x07),
            'f' => return Ok(0x0c),
            'n' => return Ok(u32::from(b'\n')),
            'r' => return Ok(u32::from(b'\r')),
            't' => return Ok(u32::from(b'\t')),
            'v' => return Ok(0x0b),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => return Ok(c as u32),
            _ => {}
        }
        Err(self.error_from("invalid escape sequence", start))
    }

    /// Reads the rest of `\x41` or `\x{41}`.
    fn hexadecimal(&mut self) -> Option<u32> {
        if !self.accept("{") {
            // The message has both characters, even if they are not digits.
            let first = self.take()?.to_digit(16);
            let second = self.take()?.to_digit(16);
            return Some(first? * 16 + second?);
        }
        let mut code: Option<u32> = None;
        loop {
            let c = self.take()?;
            if c == '}' {
                return code;
            }
            let value = code.unwrap_or_default() * 16 + c.to_digit(16)?;
            if value > char::MAX as u32 {
                return None;
            }
            code = Some(value);
        }
    }

    pub(super) fn class(&mut self) -> Result<(), String> {
        let start = self.position;
        self.take();
        let mut class = String::from(if self.accept("^") { "[^" } else { "[" });
        let empty_len = class.len();
        let mut is_first = true;
        while is_first || !self.rest().starts_with(']') {
            is_first = false;
            self.class_item(start, &mut class)?;
        }
        self.take();
        if class.len() == empty_len {
            // The class has only surrogates.
            class.push_str("a&&b");
        }
        class.push(']');
        self.out.push_str(&class);
        self.item(0);
        Ok(())
    }

    fn class_item(&mut self, class_start: usize, class: &mut String) -> Result<(), String> {
        let rest = self.rest();
        if rest.starts_with("[:")
            && let Some(length) = rest[2..].find(":]")
        {
            let name = &rest[..length + 4];
            let bare = &rest[2..length + 2];
            if !NAMED_CLASSES.contains(&bare.strip_prefix('^').unwrap_or(bare)) {
                return Err(error(INVALID_CLASS, name));
            }
            self.position += name.len();
            class.push_str(name);
            return Ok(());
        }
        if rest.starts_with(r"\p") || rest.starts_with(r"\P") {
            class.push_str(&self.unicode_class()?);
            return Ok(());
        }
        if let Some(known) = self.perl_class() {
            class.push_str(known);
            return Ok(());
        }
        let start = self.position;
        let low = self.class_char(class_start)?;
        let mut high = low;
        let bytes = self.rest().as_bytes();
        if bytes.len() >= 2 && bytes[0] == b'-' && bytes[1] != b']' {
            self.take();
            high = self.class_char(class_start)?;
            if high < low {
                return Err(self.error_from(INVALID_CLASS, start));
            }
        }
        push_range(class, low, high);
        Ok(())
    }

    fn class_char(&mut self, class_start: usize) -> Result<u32, String> {
        match self.peek() {
            None => Err(error("missing closing ]", &self.source[class_start..])),
            Some('\\') => self.escape(),
            Some(c) => self.text_char(c),
        }
    }
}

/// Appends a range of a class without surrogates.
fn push_range(class: &mut String, low: u32, high: u32) {
    let is_surrogate = |code: u32| (0xd800..0xe000).contains(&code);
    let low = if is_surrogate(low) { 0xe000 } else { low };
    let high = if is_surrogate(high) { 0xd7ff } else { high };
    if low > high {
        return;
    }
    let _ = write!(class, "\\x{{{low:X}}}");
    if high > low {
        let _ = write!(class, "-\\x{{{high:X}}}");
    }
}
