
set edit:completion:arg-completer[ostler] = { |@words|
    var index = (count $words)
    set index = (- $index 1)

    put (env _CLAP_IFS="\n" _CLAP_COMPLETE_INDEX=(to-string $index) OSTLER_COMPLETE="elvish" ostler -- $@words) | to-lines
}

