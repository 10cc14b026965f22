//! What a shell reads at its start: the user's own files, then the functions and prompt marks of ours.
//!
//! Nothing of the user is touched: a folder of ours stands where the shell looks first. Every function begins with the
//! status of the line before and returns it; none fails under `set -eu`, a frozen variable or a trap. Names begin with
//! `__ost_`; nothing is exported (but under `set -a`), so no nested shell and no `env` shows any of it. Marks around an
//! output go to the terminal itself, wherever the output goes. A directory whose name no mark can hold is left out.
//!
//! Why marks are where they are, shell by shell, is said at each.

use std::{fs, io, os::unix::fs::DirBuilderExt as _, path::Path};

use crate::terminal::dialect::{Dialect, quoted, write_new};

/// What a shell is to find at its start.
pub(super) struct Start<'a> {
    pub(super) nonce: &'a str,
    pub(super) dir: &'a Path,
    /// Leave the user's start files out.
    pub(super) clean: bool,
    /// Read them as a login shell does.
    pub(super) login: bool,
    /// `ZDOTDIR` of the request.
    pub(super) zdotdir: Option<&'a str>,
    /// `ENV` of the request.
    pub(super) env: Option<&'a str>,
}

impl Start<'_> {
    /// Makes the folder of a shell with its start files.
    ///
    /// # Errors
    /// What the disk answers.
    pub(super) fn lay_down(&self, dialect: Dialect) -> io::Result<()> {
        let mut private = fs::DirBuilder::new();
        private.mode(0o700);
        if let Some(above) = self.dir.parent() {
            private.recursive(true).create(above)?;
        }
        private.recursive(false).create(self.dir)?;
        for (name, content) in self.files(dialect) {
            write_new(&self.dir.join(name), content.as_bytes())?;
        }
        Ok(())
    }

    fn files(&self, dialect: Dialect) -> Vec<(&'static str, String)> {
        match dialect {
            Dialect::Bash => vec![("rc", self.bash())],
            Dialect::Zsh => vec![(".zshenv", self.zshenv()), (".zshrc", self.zshrc())],
            Dialect::Fish => vec![("rc", self.fill(FISH))],
            Dialect::Posix => vec![("env", self.posix())],
            Dialect::Plain => Vec::new(),
        }
    }

    fn fill(&self, script: &str) -> String {
        script
            .replace("@NONCE@", self.nonce)
            .replace("@DIR@", &quoted(&self.dir.display().to_string()))
    }

    fn bash(&self) -> String {
        let user = match (self.clean, self.login) {
            (true, _) => "",
            (false, false) => "if [ -r ~/.bashrc ]; then . ~/.bashrc; fi\n",
            (false, true) => {
                "if [ -r /etc/profile ]; then . /etc/profile; fi\n\
                 for __ost_f in ~/.bash_profile ~/.bash_login ~/.profile; do\n\
                 if [ -r \"$__ost_f\" ]; then . \"$__ost_f\"; break; fi\n\
                 done\nunset __ost_f\n"
            }
        };
        format!("{}{user}{}", self.fill(BASH), self.fill(BASH_AFTER))
    }

    fn zshenv(&self) -> String {
        let back = match self.zdotdir {
            Some(dir) => format!("export ZDOTDIR={}\n", quoted(dir)),
            None => "unset ZDOTDIR\n".into(),
        };
        let user = if self.clean { "" } else { ZSHENV_USER };
        format!("{back}{user}{}", self.fill(ZSHENV_AFTER))
    }

    fn zshrc(&self) -> String {
        let user = if self.clean { "" } else { ZSHRC_USER };
        format!("{}{ZSHRC_BEFORE}{user}__ost_arm e\n", self.fill(ZSH))
    }

    fn posix(&self) -> String {
        let user = match self.env.filter(|_| !self.clean) {
            Some(file) => format!(
                "export ENV={0}\nif [ -r {0} ]; then . {0}; fi\n",
                quoted(file)
            ),
            None => "unset ENV\n".into(),
        };
        format!("{}{user}__ost_arm\n", self.fill(POSIX))
    }
}

/// Before the user's files, so that these cannot break a definition half way.
const BASH: &str = r#"__ost_k=@NONCE@ __ost_p=@DIR@
__ost_d() {
  local s=$? w=$PWD
  case $w in *[[:cntrl:]]*) w= ;; esac
  builtin printf '\033]133;D;%s;k=%s;%s\007' "$s" "$__ost_k" "$w"
  case $- in *e*) return 0 ;; esac
  return "$s"
}
__ost_c() {
  builtin printf '\033]133;C;k=%s;n=%s\007' "$__ost_k" "${__ost_n-}" >/dev/tty
  case $- in *e*) return 0 ;; esac
  return "${__ost_s:-0}"
}
__ost_e() {
  local s=$? w=$PWD
  case $w in *[[:cntrl:]]*) w= ;; esac
  builtin printf '\033]133;D;%s;k=%s;n=%s;%s\007' "$s" "$__ost_k" "${__ost_n-}" "$w" >/dev/tty
  __ost_t= __ost_n=
  case "${PROMPT_COMMAND[*]-}" in *__ost_d*__ost_arm*) ;; *) __ost_hook ;; esac
  __ost_arm
  return "$s"
}
__ost_arm() {
  local s=$?
  case ${PS1-} in
    *";k=$__ost_k"*) ;;
    *) PS1='\[\e]133;A;k='$__ost_k'\a\]'${PS1-}'\[\e]133;B;k='$__ost_k'\a\]' ;;
  esac
  case ${PS2-} in *";k=$__ost_k"*) ;; *) PS2='\[\e]133;P;k='$__ost_k'\a\]'${PS2-} ;; esac
  case ${PS0-} in *";k=$__ost_k"*) ;; *) PS0='\e]133;H;k='$__ost_k'\a'${PS0-} ;; esac
  return "$s"
}
__ost_hook() {
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
    PROMPT_COMMAND=('{ __ost_d; } 2>/dev/null' ${PROMPT_COMMAND[@]+"${PROMPT_COMMAND[@]}"} '{ __ost_arm; } 2>/dev/null')
  else
    PROMPT_COMMAND='{ __ost_d; } 2>/dev/null
'${PROMPT_COMMAND-:}'
{ __ost_arm; } 2>/dev/null'
  fi
}
"#;

/// The first hook tells the end of a line before a hook of the user can print; the last one puts back what a
/// framework has replaced.
const BASH_AFTER: &str = r#"__ost_hook
__ost_arm
HISTIGNORE="${HISTIGNORE:+$HISTIGNORE:} . \"\$__ost_p\"*:   *"
"#;

/// The folder of the user, as this file of his may have changed it, is kept for the next file.
const ZSHENV_USER: &str = r#"if [[ -r ${ZDOTDIR-$HOME}/.zshenv ]]; then source "${ZDOTDIR-$HOME}/.zshenv"; fi
"#;

const ZSHENV_AFTER: &str = r#"__ost_z=${ZDOTDIR-} __ost_y=${+ZDOTDIR}
ZDOTDIR=@DIR@
"#;

/// Every function and hook is there before the user's file runs. The mark of an unfinished last line is printed before
/// any hook, so an end stands in it as well: else that mark would count as output. A line is kept out of the history by a
/// status that `!` has made, which ends no shell under `set -e` and springs no trap. Each hook costs a tenth of a prompt, so
/// that there are no more than must be: where no hook of the user can print between a line and its output, that of the
/// history tells the beginning as well; where that mark tells each end and no hook of the user can print behind it, there
/// is none to tell it a second time. Where everything stands as it was put last, one comparison shows that: to put it there
/// costs a third of a prompt.
const ZSH: &str = r#"__ost_k=@NONCE@ __ost_p=@DIR@ __ost_g=
__ost_say() {
  local w=$PWD
  case $w in *[[:cntrl:]]*) w= ;; esac
  builtin printf '\033]133;D;%s;k=%s;%s\007' "$1" "$__ost_k" "$w"
}
__ost_d() {
  local s=$?
  __ost_say $s
  return $s
}
__ost_pre() {
  builtin printf '\033]133;H;k=%s\007' "$__ost_k"
}
__ost_c() {
  builtin printf '\033]133;C;k=%s;n=%s\007' "$__ost_k" "${__ost_n-}" >/dev/tty
  if [[ -o err_return || -o err_exit ]]; then return 0; fi
  return ${__ost_s:-0}
}
__ost_e() {
  local s=$? w=$PWD
  case $w in *[[:cntrl:]]*) w= ;; esac
  builtin printf '\033]133;D;%s;k=%s;n=%s;%s\007' "$s" "$__ost_k" "${__ost_n-}" "$w" >/dev/tty
  __ost_t= __ost_n=
  __ost_arm e
  return $s
}
__ost_hist() {
  if [[ $1 == ' . "$__ost_p"/'* || $1 == '   '* ]]; then ! return 0; fi
}
__ost_begin() {
  builtin printf '\033]133;H;k=%s\007' "$__ost_k"
  if [[ $1 == ' . "$__ost_p"/'* || $1 == '   '* ]]; then ! return 0; fi
}
__ost_arm() {
  local s=$?
  if [[ -o prompt_sp && -o prompt_cr && "${precmd_functions-};${preexec_functions-};${+functions[preexec]};${zshaddhistory_functions-};${PROMPT_EOL_MARK-};${PS1-};${PS2-}" == "$__ost_g" ]]; then
    return $s
  fi
  local o= t=
  if [[ -o prompt_sp && -o prompt_cr ]]; then o=1; fi
  if [[ -n $o && ${PROMPT_EOL_MARK-} == *";k=$__ost_k"* ]]; then t=1; fi
  emulate -L zsh
  (( ${+precmd_functions} )) || precmd_functions=()
  (( ${+preexec_functions} )) || preexec_functions=()
  (( ${+zshaddhistory_functions} )) || zshaddhistory_functions=()
  if [[ -z $t && -z ${1-} && ${precmd_functions[1]-} != __ost_d ]]; then __ost_say $s; fi
  { [[ ${PROMPT_EOL_MARK-} == *";k=$__ost_k"* ]] ||
    PROMPT_EOL_MARK=$'%{\e]133;D;%?;k='$__ost_k$'\a%}'${PROMPT_EOL_MARK-%B%S%#%s%b} } always { TRY_BLOCK_ERROR=0 }
  if [[ -n $o && ${PROMPT_EOL_MARK-} == *";k=$__ost_k"* && -z ${precmd_functions:#__ost_*} ]]; then
    { precmd_functions=(__ost_arm) } always { TRY_BLOCK_ERROR=0 }
  else
    { precmd_functions=(__ost_d ${precmd_functions:#__ost_*} __ost_arm) } always { TRY_BLOCK_ERROR=0 }
  fi
  if (( ! ${+functions[preexec]} )) && [[ -z ${preexec_functions:#__ost_*} ]]; then
    { preexec_functions=() } always { TRY_BLOCK_ERROR=0 }
    { zshaddhistory_functions=(${zshaddhistory_functions:#__ost_*} __ost_begin) } always { TRY_BLOCK_ERROR=0 }
  else
    { preexec_functions=(${preexec_functions:#__ost_*} __ost_pre) } always { TRY_BLOCK_ERROR=0 }
    local h=__ost_hist
    if [[ ${preexec_functions[-1]-} != __ost_pre ]]; then h=__ost_begin; fi
    { zshaddhistory_functions=(${zshaddhistory_functions:#__ost_*} $h) } always { TRY_BLOCK_ERROR=0 }
  fi
  { [[ $PS1 == *";k=$__ost_k"* ]] ||
    PS1=$'%{\e]133;A;k='$__ost_k$'\a%}'$PS1$'%{\e]133;B;k='$__ost_k$'\a%}' } always { TRY_BLOCK_ERROR=0 }
  { [[ $PS2 == *";k=$__ost_k"* ]] || PS2=$'%{\e]133;P;k='$__ost_k$'\a%}'$PS2 } always { TRY_BLOCK_ERROR=0 }
  __ost_g="${precmd_functions-};${preexec_functions-};${+functions[preexec]};${zshaddhistory_functions-};${PROMPT_EOL_MARK-};${PS1-};${PS2-}"
  return $s
}
"#;

const ZSHRC_BEFORE: &str = r#"if (( ${__ost_y:-0} )); then ZDOTDIR=$__ost_z; else unset ZDOTDIR; fi
unset __ost_z __ost_y
__ost_arm e
"#;

const ZSHRC_USER: &str = r#"if [[ -r ${ZDOTDIR-$HOME}/.zshrc ]]; then source "${ZDOTDIR-$HOME}/.zshrc"; fi
"#;

/// No prompt text is wrapped: fish repaints prompts at will. Its last event before a prompt is late enough.
const FISH: &str = r#"set -g __ost_k @NONCE@
set -g __ost_p @DIR@
function __ost_c
    set -l s $status
    read -gz __ost_t <$__ost_p/$argv[1]
    set -g __ost_n $argv[2]
    builtin printf '\033]133;C;k=%s;n=%s\007' $__ost_k $argv[2] >/dev/tty
    return $s
end
function __ost_e
    set -l s $status
    set -l w $PWD
    string match -qr '[[:cntrl:]]' -- $w; and set w ''
    builtin printf '\033]133;D;%s;k=%s;n=%s;%s\007' $s $__ost_k "$__ost_n" "$w" >/dev/tty
    set -g __ost_t
    set -g __ost_n
    return $s
end
function __ost_d --on-event fish_postexec
    set -l s $status
    set -l w $PWD
    string match -qr '[[:cntrl:]]' -- $w; and set w ''
    builtin printf '\033]133;D;%s;k=%s;%s\007' $s $__ost_k "$w"
    return $s
end
function __ost_h --on-event fish_preexec
    printf '\033]133;H;k=%s\007' $__ost_k
end
function __ost_b --on-event fish_prompt
    printf '\033]133;B;k=%s\007' $__ost_k
end
"#;

/// Marks by expansion alone: these shells run nothing before a prompt.
const POSIX: &str = r#"__ost_k=@NONCE@ __ost_p=@DIR@
__ost_c() {
  command printf '\033]133;C;k=%s;n=%s\007' "$__ost_k" "${__ost_n-}" >/dev/tty
  case $- in *e*) return 0 ;; esac
  return "${__ost_s:-0}"
}
__ost_e() {
  __ost_s=$?
  case $PWD in
    *[[:cntrl:]]*) __ost_w= ;;
    *) __ost_w=$PWD ;;
  esac
  command printf '\033]133;D;%s;k=%s;n=%s;%s\007' "$__ost_s" "$__ost_k" "${__ost_n-}" "$__ost_w" >/dev/tty
  __ost_t= __ost_n=
  __ost_arm
  return "$__ost_s"
}
__ost_arm() {
  case ${PS1-} in
    *";k=$__ost_k"*) ;;
    *) PS1="$(printf '\033]133;D;')"'$?'"$(printf ';k=%s\007' "$__ost_k")${PS1-}$(printf '\033]133;B;k=%s\007' "$__ost_k")" ;;
  esac
  case ${PS2-} in
    *";k=$__ost_k"*) ;;
    *) PS2="$(printf '\033]133;P;k=%s\007' "$__ost_k")${PS2-}" ;;
  esac
}
"#;
