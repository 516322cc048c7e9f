"""Tables -> what to do: sentences that each follow from named rows, or are withheld with what is missing."""
