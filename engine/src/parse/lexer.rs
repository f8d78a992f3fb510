//! The lexer: text to tokens with positions.
//!
//! Source: `promql/parser/lex.go` of Prometheus; the same input leads to the same tokens and the
//! same first error.

use super::Fault;
use super::ast::BinaryOp;
use super::quote::{code_point, quoted, quoted_char};
use super::token::{Context, Token, TokenKind};

/// Reads tokens one by one.
pub(super) struct Lexer<'a> {
    input: &'a str,
    /// Byte offset of the next character.
    pos: usize,
    /// Byte offset of the current token.
    start: usize,
    paren_depth: usize,
    is_in_braces: bool,
    is_in_brackets: bool,
    /// True if a bracket is open and no number was read in it yet.
    is_in_duration: bool,
    got_colon: bool,
    got_duration: bool,
}

const DIGITS: &str = "0123456789";
const HEX_DIGITS: &str = "0123456789abcdefABCDEF";

impl<'a> Lexer<'a> {
    /// Returns a lexer at the start of the text.
    pub fn new(input: &'a str) -> Lexer<'a> {
        Lexer {
            input,
            pos: 0,
            start: 0,
            paren_depth: 0,
            is_in_braces: false,
            is_in_brackets: false,
            is_in_duration: false,
            got_colon: false,
            got_duration: false,
        }
    }

    /// Reads the next token; at the end of the text, always `Eof`.
    pub fn next_token(&mut self) -> Result<Token, Fault> {
        loop {
            self.start = self.pos;
            if self.is_in_duration {
                self.skip(is_space);
                self.start = self.pos;
                return self.in_duration();
            }
            if self.peek() == Some('#') {
                self.skip(|c| !matches!(c, '\r' | '\n'));
                continue;
            }
            if self.peek().is_some_and(is_space) {
                self.skip(is_space);
                continue;
            }
            return if self.is_in_braces { self.in_braces() } else { self.in_statement() };
        }
    }

    fn peek(&self) -> Option<char> {
        self.input[self.pos..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        Some(c)
    }

    fn skip(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.next();
        }
    }

    fn accept(&mut self, wanted: &str) -> bool {
        let found = self.is_at(wanted);
        if found {
            self.next();
        }
        found
    }

    fn is_at(&self, wanted: &str) -> bool {
        self.peek().is_some_and(|c| wanted.contains(c))
    }

    fn token(&self, kind: TokenKind) -> Result<Token, Fault> {
        Ok(Token { kind, start: self.start, end: self.pos })
    }

    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault { position: self.start, message: message.into() }
    }

    /// Returns an error at the end of the current token.
    fn fault_after(&self, message: impl Into<String>) -> Fault {
        Fault { position: self.pos, message: message.into() }
    }

    fn in_statement(&mut self) -> Result<Token, Fault> {
        let Some(c) = self.next() else {
            if self.paren_depth != 0 {
                return Err(self.fault("unclosed left parenthesis"));
            }
            if self.is_in_brackets {
                return Err(self.fault("unclosed left bracket"));
            }
            return self.token(TokenKind::Eof);
        };
        match c {
            ',' => self.token(TokenKind::Comma),
            '@' => self.token(TokenKind::At),
            '+' | '-' | '*' | '/' | '%' | '^' => self.arithmetic(c),
            '=' | '!' | '<' | '>' => self.comparison(c),
            c if is_digit(c) || c == '.' && self.is_at(DIGITS) => self.number_or_duration(),
            '"' | '\'' => self.string(c),
            '`' => self.raw_string(),
            c if is_alpha(c) || c == ':' => {
                if self.is_in_brackets {
                    self.word_in_brackets(c)
                } else {
                    self.word()
                }
            }
            '(' | ')' => self.parenthesis(c),
            '{' => {
                self.is_in_braces = true;
                self.token(TokenKind::LeftBrace)
            }
            '[' if self.is_in_brackets => {
                Err(self.fault(format!("unexpected left bracket {}", quoted_char(Some(c)))))
            }
            '[' => {
                self.got_colon = false;
                self.is_in_brackets = true;
                self.is_in_duration = true;
                self.token(TokenKind::LeftBracket)
            }
            ']' if !self.is_in_brackets => {
                Err(self.fault(format!("unexpected right bracket {}", quoted_char(Some(c)))))
            }
            ']' => {
                self.is_in_brackets = false;
                self.token(TokenKind::RightBracket)
            }
            c => Err(self.fault(format!("unexpected character: {}", quoted_char(Some(c))))),
        }
    }

    fn arithmetic(&mut self, c: char) -> Result<Token, Fault> {
        self.token(TokenKind::Operator(match c {
            '+' => BinaryOp::Add,
            '-' => BinaryOp::Sub,
            '*' => BinaryOp::Mul,
            '/' => BinaryOp::Div,
            '%' => BinaryOp::Mod,
            _ => BinaryOp::Pow,
        }))
    }

    fn comparison(&mut self, c: char) -> Result<Token, Fault> {
        let next = self.peek();
        if c == '!' {
            self.next();
            if next != Some('=') {
                let next = quoted_char(next);
                return Err(self.fault(format!("unexpected character after '!': {next}")));
            }
            return self.token(TokenKind::Operator(BinaryOp::Ne));
        }
        if c == '=' && next == Some('~') {
            return Err(self.fault("unexpected character after '=': '~'"));
        }
        let double = match (c, next) {
            ('=', Some('=')) => BinaryOp::Eq,
            ('<', Some('=')) => BinaryOp::Le,
            ('<', Some('/')) => BinaryOp::TrimUpper,
            ('>', Some('=')) => BinaryOp::Ge,
            ('>', Some('/')) => BinaryOp::TrimLower,
            ('<', _) => return self.token(TokenKind::Operator(BinaryOp::Lt)),
            ('>', _) => return self.token(TokenKind::Operator(BinaryOp::Gt)),
            _ => return self.token(TokenKind::Assign),
        };
        self.next();
        self.token(TokenKind::Operator(double))
    }

    fn parenthesis(&mut self, c: char) -> Result<Token, Fault> {
        if c == '(' {
            self.paren_depth += 1;
            return self.token(TokenKind::LeftParen);
        }
        match self.paren_depth.checked_sub(1) {
            Some(depth) => self.paren_depth = depth,
            None => return Err(self.fault_after("unexpected right parenthesis ')'")),
        }
        self.token(TokenKind::RightParen)
    }

    /// Reads a token inside `[…]` up to and including the first number.
    fn in_duration(&mut self) -> Result<Token, Fault> {
        let Some(c) = self.next() else {
            return Err(self.fault("unexpected end of input in duration expression"));
        };
        match c {
            ']' => {
                self.is_in_brackets = false;
                self.is_in_duration = false;
                self.token(TokenKind::RightBracket)
            }
            ':' if !self.got_duration => {
                Err(self.fault_after("unexpected colon before duration in duration expression"))
            }
            ':' if self.got_colon => {
                Err(self.fault_after("unexpected repeated colon in duration expression"))
            }
            ':' => {
                self.got_colon = true;
                self.token(TokenKind::Colon)
            }
            '(' | ')' => self.parenthesis(c),
            '+' | '-' | '*' | '/' | '%' | '^' => self.arithmetic(c),
            ',' => self.token(TokenKind::Comma),
            c if starts_duration_word(c) => match self.duration_word() {
                Some(context) => self.token(TokenKind::Context(context)),
                None => Err(self.unexpected_in_duration(c)),
            },
            c if is_digit(c) || c == '.' && self.is_at(DIGITS) => {
                self.got_duration = true;
                self.is_in_duration = false;
                self.number_or_duration()
            }
            c => Err(self.unexpected_in_duration(c)),
        }
    }

    fn unexpected_in_duration(&self, c: char) -> Fault {
        let c = quoted_char(Some(c));
        self.fault(format!("unexpected character in duration expression: {c}"))
    }

    /// Reads a word inside `[…]` after the first number.
    fn word_in_brackets(&mut self, c: char) -> Result<Token, Fault> {
        if c == ':' {
            if self.got_colon {
                return Err(self.fault("unexpected colon ':'"));
            }
            self.got_colon = true;
            return self.token(TokenKind::Colon);
        }
        if starts_duration_word(c)
            && let Some(context) = self.duration_word()
        {
            return self.token(TokenKind::Context(context));
        }
        let c = quoted_char(Some(c));
        Err(self.fault(format!("unexpected character: {c}, expected ':'")))
    }

    fn duration_word(&mut self) -> Option<Context> {
        self.skip(is_alpha);
        let word = self.input[self.start..self.pos].to_ascii_lowercase();
        Context::of_word(&word).filter(|context| context.is_in_durations())
    }

    fn in_braces(&mut self) -> Result<Token, Fault> {
        let Some(c) = self.next() else {
            return Err(self.fault("unexpected end of input inside braces"));
        };
        match c {
            c if is_alpha(c) => {
                self.skip(is_alphanumeric);
                self.token(TokenKind::Identifier)
            }
            ',' => self.token(TokenKind::Comma),
            '"' | '\'' => self.string(c),
            '`' => self.raw_string(),
            '=' => {
                let is_regex = self.accept("~");
                self.token(if is_regex { TokenKind::EqualRegex } else { TokenKind::Assign })
            }
            '!' => match self.next() {
                Some('~') => self.token(TokenKind::NotRegex),
                Some('=') => self.token(TokenKind::Operator(BinaryOp::Ne)),
                other => {
                    let other = quoted_char(other);
                    Err(self
                        .fault(format!("unexpected character after '!' inside braces: {other}")))
                }
            },
            '{' => Err(self.fault("unexpected left brace '{'")),
            '}' => {
                self.is_in_braces = false;
                self.token(TokenKind::RightBrace)
            }
            c => {
                let c = quoted_char(Some(c));
                Err(self.fault(format!("unexpected character inside braces: {c}")))
            }
        }
    }

    fn word(&mut self) -> Result<Token, Fault> {
        self.skip(|c| is_alphanumeric(c) || c == ':');
        let kind = TokenKind::of_word(&self.input[self.start..self.pos]);
        let is_plain = matches!(kind, TokenKind::Keyword(keyword) if keyword.is_fill())
            && !self.input[self.pos..].trim_start_matches(is_space).starts_with('(');
        self.token(if is_plain { TokenKind::Identifier } else { kind })
    }

    /// Reads a string after its opening quote.
    fn string(&mut self, quote: char) -> Result<Token, Fault> {
        loop {
            match self.next() {
                Some('\\') => self.escape(quote)?,
                Some(char::REPLACEMENT_CHARACTER) => return Err(self.fault("invalid UTF-8 rune")),
                None | Some('\n') => return Err(self.fault("unterminated quoted string")),
                Some(c) if c == quote => return self.token(TokenKind::String),
                Some(_) => {}
            }
        }
    }

    fn raw_string(&mut self) -> Result<Token, Fault> {
        loop {
            match self.next() {
                Some('`') => return self.token(TokenKind::String),
                Some(char::REPLACEMENT_CHARACTER) => return Err(self.fault("invalid UTF-8 rune")),
                None => return Err(self.fault("unterminated raw string")),
                Some(_) => {}
            }
        }
    }

    /// Reads an escape sequence after its backslash.
    fn escape(&mut self, quote: char) -> Result<(), Fault> {
        let first = self.next();
        let (count, base, max) = match first {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') => return Ok(()),
            Some(c) if c == quote => return Ok(()),
            Some('0'..='7') => (3, 8, 255),
            Some('x') => (2, 16, 255),
            Some('u') => (4, 16, char::MAX as u32),
            Some('U') => (8, 16, char::MAX as u32),
            None => return Err(self.fault("escape sequence not terminated")),
            Some(c) => {
                return Err(self.fault(format!("unknown escape sequence {}", code_point(c))));
            }
        };
        let mut value: u32 = 0;
        let mut digit = if base == 8 { first } else { self.next() };
        for position in 0..count {
            if position > 0 {
                digit = self.next();
            }
            let Some(c) = digit else {
                return Err(self.fault("escape sequence not terminated"));
            };
            let Some(d) = c.to_digit(base) else {
                let c = code_point(c);
                return Err(self.fault(format!("illegal character {c} in escape sequence")));
            };
            value = value.wrapping_mul(base).wrapping_add(d);
        }
        if value > max || (0xd800..0xe000).contains(&value) {
            return Err(self.fault("escape sequence is an invalid Unicode code point"));
        }
        Ok(())
    }

    /// Reads a number or a duration after its first character.
    fn number_or_duration(&mut self) -> Result<Token, Fault> {
        self.pos = self.start;
        if self.scan_number() {
            return self.token(TokenKind::Number);
        }
        if self.scan_duration() {
            return self.token(TokenKind::Duration);
        }
        let text = quoted(&self.input[self.start..self.pos]);
        Err(self.fault(format!("bad number or duration syntax: {text}")))
    }

    fn scan_number(&mut self) -> bool {
        let initial = self.pos;
        let mut digits = DIGITS;
        if self.accept("0") && self.accept("xX") {
            self.accept("_");
            digits = HEX_DIGITS;
        }
        self.accept(".");
        self.accept(digits);
        let (mut got_dot, mut got_exponent) = (false, false);
        while self.is_at(digits) || self.is_at("._eE") {
            if got_dot && self.accept(".") || got_exponent && self.accept("eE") {
                return false;
            }
            if self.accept(".") {
                got_dot = true;
                // Hexadecimal numbers have no fraction.
                if self.accept("_.") || digits.len() > DIGITS.len() {
                    return false;
                }
            } else if self.accept("eE") {
                got_exponent = true;
                self.accept("+-");
                if self.accept("._eE") || self.peek().is_none() {
                    return false;
                }
            } else if self.accept("_") {
                if self.accept("._eE") || self.peek().is_none() {
                    return false;
                }
            } else {
                self.skip(|c| digits.contains(c));
            }
        }
        self.pos > initial && !self.peek().is_some_and(is_alphanumeric)
    }

    /// Scans the first unit of a duration and any further numbers with units.
    fn scan_duration(&mut self) -> bool {
        if !self.accept("smhdwy") {
            return false;
        }
        self.accept("s");
        while self.accept(DIGITS) {
            self.skip(is_digit);
            if !self.accept("smhdw") {
                return false;
            }
            self.accept("s");
        }
        if self.peek().is_some_and(is_alphanumeric) {
            // The message includes the unexpected character.
            self.next();
            return false;
        }
        true
    }
}

/// Returns whether a character can start a word of duration expressions.
fn starts_duration_word(c: char) -> bool {
    matches!(c.to_ascii_lowercase(), 's' | 'r' | 'm')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn is_alpha(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

fn is_alphanumeric(c: char) -> bool {
    is_alpha(c) || is_digit(c)
}
